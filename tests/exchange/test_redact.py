from __future__ import annotations

import json
import re

import pytest

from podium.exchange.redact import redacted, rules

# put together here, so that no file has what looks like a key
SECRETS = {
    "api-key": [
        "sk-" + "ant-api03-" + "Ab1_" * 8,
        "gh" + "p_" + "a1B2" * 9,
        "xox" + "b-1234567890-abc",
        "AI" + "za" + "Sy0_" * 9,
    ],
    "aws-key": ["AK" + "IA" + "ABCD1234" * 2],
    "token": ["ey" + "JhbGciOiJI" + ".eyJzdWIiOiIx." + "abc_123"],
    "email": ["ann.lee+x@mail.example.org"],
    "ip": ["10.20.30.40", "203.0.113.9"],
    "private-key": ["-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE\nabc\n-----END RSA " + "PRIVATE KEY-----"],
}


@pytest.mark.parametrize(("name", "secret"), [(n, s) for n, secrets in SECRETS.items() for s in secrets])
def test_secrets_are_taken_out(name: str, secret: str) -> None:
    before = json.dumps({"text": f"use {secret} now", "more": ["it's", secret]})
    after = redacted(before.encode())
    assert json.loads(after) == {"text": f"use [{name}] now", "more": ["it's", f"[{name}]"]}


@pytest.mark.parametrize("start", ["", "first\n", "a\t"])
@pytest.mark.parametrize(
    "given",
    [
        'export API_KEY="%s"',
        "password: %s",
        '{"access_token": "%s"}',
        "Authorization: Bearer %s",
        "https://ann:%s@example.org/x",
    ],
)
def test_values_of_secret_names_are_taken_out(given: str, start: str) -> None:
    secret = "q7W8e9R0t1Y2u3"
    after = redacted(json.dumps([start + given % secret]).encode())
    assert secret.encode() not in after
    json.loads(after)


@pytest.mark.parametrize(
    "harmless",
    [
        "fix the bug in a.py:12",
        "version 1.2.3",
        "127.0.0.1",
        "tokens: 12345",
        "the key is missing",
        "sk-learn",
        "git@",
        "a@b",
        "0.0.0.0",
    ],
)
def test_what_is_harmless_stays(harmless: str) -> None:
    assert redacted(json.dumps(harmless).encode()) == json.dumps(harmless).encode()


@pytest.mark.parametrize("before", ["\n", "a\tb\n", "\\", "\\\n", "\x01", "\u20ac\x02"])
@pytest.mark.parametrize("after", ["", "\n", "\\", '"'])
def test_an_escape_beside_a_secret_stays_whole(before: str, after: str) -> None:
    for name, secrets in SECRETS.items():
        for secret in secrets:
            read = json.loads(redacted(json.dumps([before + secret + after]).encode()))
            assert read == [f"{before}[{name}]{after}"], name
    unended = json.dumps(["-----BEGIN RSA " + 'PRIVATE KEY-----\nMIIE" and more'])
    assert json.loads(redacted(unended.encode())) == ['[private-key]" and more']


def test_hints_only_save_time() -> None:
    for name, secrets in SECRETS.items():
        for secret in secrets:
            found = [r for r in rules() if r.pattern.search(json.dumps(secret).encode())]
            assert found[0].name == name
            assert all(not r.hints or any(h in json.dumps(secret).lower().encode() for h in r.hints) for r in found)
    assert all(re.compile(r.pattern.pattern) for r in rules())
