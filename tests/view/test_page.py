"""The page as a file: it carries its answers, and nothing in a trace can become part of it."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import msgspec
import pytest

import podium
from podium.trace.columns import Trace
from podium.view.answers import Library
from podium.view.bundle import unpack
from podium.view.page import file_page, served_page
from podium.view.training import Lesson, board_page, lessons_page
from tests.pages import carried
from tests.verbs import verb
from tests.view.conftest import HOSTILE, plain_run


def test_the_file_carries_what_the_library_answers(run: Trace) -> None:
    answers = carried(file_page([("one", run)]))
    library = Library((), [("one", run)])
    assert answers["run?run=0"] == library.answer("run", {"run": "0"})
    assert answers["events?chunk=0&run=0"] == library.answer("events", {"run": "0", "chunk": "0"})
    assert unpack(answers["run?run=0"])[0]["events"] == run.n_events
    index = msgspec.json.decode(answers["index"])
    assert index["static"] is True
    assert any(key.startswith("credit?") for key in answers)


def test_the_policy_lets_only_our_script_run(run: Trace) -> None:
    page = file_page([("one", run)])
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    for part, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{part} 'sha256-{digest}'" in policy
    assert "connect-src 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    served, header = served_page("runs")
    assert "connect-src 'self'" in header
    assert "frame-ancestors 'none'" in header
    assert HOSTILE not in served


def test_hostile_words_are_never_markup(run: Trace) -> None:
    page = file_page([("one", run)], title=HOSTILE)
    assert HOSTILE not in page
    assert "&lt;/script&gt;&lt;img src=x" in page  # the title, as text
    tags = re.findall(r"<[a-z][^>]*>", re.sub(r"<script.*?</script>", "", page, flags=re.S))
    assert not [tag for tag in tags if re.search(r"\son[a-z]+=|javascript:|<img|<iframe", tag)]


def test_the_file_fetches_nothing(run: Trace) -> None:
    page = re.sub(r"<script.*?</script>|<style.*?</style>", "", file_page([("one", run)]), flags=re.S)
    assert not re.search(r"src=|href=|url\(|@import", page)


def test_methods_are_chosen_by_name(run: Trace) -> None:
    keys = [k for k in carried(file_page([("one", run)], methods=["puppeteer"])) if k.startswith("credit?")]
    assert keys[0] == "credit?method=puppeteer&run=0&unit=own"
    assert {k.rpartition("=")[0] for k in keys} == {"credit?method=puppeteer&run=0&unit"}
    assert not [k for k in carried(file_page([("one", run)], methods=())) if k.startswith("credit?")]


@pytest.mark.parametrize("trace", [plain_run(0), plain_run(3, times=False), plain_run(1), plain_run(50, 50)])
def test_any_run_has_a_page(trace: Trace) -> None:
    assert "run?run=0" in carried(file_page([("", trace)]))


def test_reports_are_the_same_page(run: Trace) -> None:
    line = {"iteration": 0, "regret": 0.5, "score": 1.0, "mix": {}, "gradients": {}}
    answers = carried(
        lessons_page("Five", [{"decision": "stop", "regret": 0.1}], [Lesson("stop", [line], run, run)])
    )
    told = msgspec.json.decode(answers["index"])["report"]
    assert told["table"] == [{"decision": "stop", "regret": 0.1}]
    assert told["lessons"] == [{"title": "stop", "lines": [line], "before": 0, "after": 1}]
    assert {"run?run=0", "run?run=1"} <= set(answers)
    assert msgspec.json.decode(carried(board_page([{"method": "grpo"}]))["index"])["report"]["title"]


def test_an_audit_is_a_page_too(tmp_path: Path, run: Trace) -> None:
    podium.save(run, tmp_path / "run.jsonl")
    answer = verb("audit", tmp_path / "run.jsonl", "--html", tmp_path / "audit.html", "--json")
    assert answer.returncode == 0
    told = msgspec.json.decode(carried((tmp_path / "audit.html").read_text())["index"])["report"]
    audited = msgspec.json.decode(answer.stdout)
    assert [row["detector"] for row in told["table"]] == [
        one["detector"] for one in (*audited["found"], *audited["observed"])
    ]


def test_the_verb_writes_a_file_or_says_why_not(tmp_path: Path, run: Trace) -> None:
    podium.save(run, tmp_path / "run.jsonl")
    answer = verb("view", tmp_path / "run.jsonl", "--html", tmp_path / "page.html", "--json")
    assert msgspec.json.decode(answer.stdout) == {
        "runs": 1,
        "trainings": 0,
        "unreadable": [],
        "page": str(tmp_path / "page.html"),
    }
    answer = verb("view", tmp_path / "none.jsonl")
    assert (answer.returncode, b"No such file" in answer.stderr.encode()) == (2, True)


def test_a_notebook_shows_the_page_in_a_sandbox(run: Trace) -> None:
    shown = podium.Trace._repr_html_(run)
    assert shown.startswith('<iframe sandbox="allow-scripts"')
    assert HOSTILE not in shown
    assert shown.count("<") == 2
