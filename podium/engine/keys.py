"""Keys and passwords of servers: sent where they belong, and hidden in whatever a server says back."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["Login", "hide", "hide_in", "login"]

HIDDEN = "[key]"
SHORTEST = 6  # characters of a key; what is shorter is no secret, and taking it out would garble texts


class Login(NamedTuple):
    """An address without its user and password, and these two where it named them."""

    url: str
    user: str = ""
    password: str = ""

    @property
    def pair(self) -> tuple[str, str] | None:
        return (self.user, self.password) if self.user or self.password else None

    def secrets(self, key_from: str | None = None, key: str = "") -> tuple[str, ...]:
        """All that must not be shown: the password in any form in which a server may echo it, and the key."""
        basic = b64encode(f"{self.user}:{self.password}".encode()).decode() if self.password else ""
        return self.password, basic, key, os.environ.get(key_from or "", "")


def login(url: str) -> Login:
    """The parts of an address.

    >>> login("https://ann:s%20cret@host:8000/v1")
    Login(url='https://host:8000/v1', user='ann', password='s cret')
    """
    try:
        parts = urlsplit(url)
        name, at, place = parts.netloc.rpartition("@")
    except ValueError:
        return Login(url)
    user, _, password = name.partition(":")
    return Login(parts._replace(netloc=place).geturl(), unquote(user), unquote(password)) if at else Login(url)


def hide(text: str, secrets: Iterable[str]) -> str:
    """A text without these secrets.

    >>> hide("no such key: sk-12345678", ["sk-12345678", ""])
    'no such key: [key]'
    """
    for secret in secrets:
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text


def hide_in(value: Any, secrets: Iterable[str]) -> Any:
    """What JSON says, however deep, with no text in it that shows one of these secrets."""
    if not (secrets := [secret for secret in secrets if len(secret) >= SHORTEST]):
        return value
    whole = [value]
    todo: list[Any] = [whole]
    while todo:
        inside = todo.pop()
        for key, one in [*(enumerate(inside) if isinstance(inside, list) else inside.items())]:
            if isinstance(one, dict):
                one = {hide(name, secrets): field for name, field in one.items()}
            elif isinstance(one, list):
                one = list(one)
            elif isinstance(one, str):
                one = hide(one, secrets)
            inside[key] = one
            if isinstance(one, list | dict):
                todo.append(one)
    return whole[0]
