"""Passwords in URLs."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from tasklib.core.redaction.keys import DEFAULT_KEYS, secret_keys
from tasklib.core.redaction.search import SHORTEST


def redact_url(url: str) -> str:
    """The URL with its passwords hidden, fit for a message or a log, even if it is not a good URL.

    A password may hold any character: all between the first colon and the last `@` is hidden.  The words that libpq
    takes in place of a URL, as in `host=one password=hunter2`, are no URL for us, but shown in the error.
    """
    if "//" not in url:
        url = _WORD.sub(_without_word, url)
    start, end = _password(url)
    hidden = f"{url[:start]}***{url[end:]}" if start else url
    return "".join(map(_without_value, _PARTS.findall(hidden)))


def redact_url_error(error: object, url: str) -> str:
    """What went wrong with a URL in one line, without its password: parsers quote parts of a bad URL."""
    text = " ".join(str(error).split())
    start, end = _password(url)
    given = url[start:end]
    in_query = [part.partition("=")[2] for part in _PARTS.findall(url) if _is_secret(part)]
    parts = {given, unquote(given), *_PIECES.split(given), *in_query, *map(unquote, in_query)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= SHORTEST:
            text = text.replace(part, "***")
        elif part:
            text = text.replace(f'"{part}"', '"***"').replace(f"'{part}'", "'***'").replace(f"'{part}@", "'***@")
    return text


def has_bare_at(url: str) -> bool:
    """Whether the password has an `@`: parsers end it there, and take the rest for a part of the host's name."""
    start, end = _password(url)
    return "@" in url[start:end]


def _password(url: str) -> tuple[int, int]:
    """From where to where the password goes; (0, 0) if there is none."""
    end = max(url.rfind("@"), 0)
    start = url.find("//", 0, end) + 2 if "//" in url[:end] else 0
    if _HOSTS_AND_QUERY.match(url, start, end):
        return 0, 0  # `//one:5432,two:5433/app?user=me@there`
    colon = url.find(":", start, end)
    return (0, 0) if colon < 0 else (colon + 1, end)


def password_in(text: str, start: int, end: int) -> tuple[int, int] | None:
    """From where to where the password goes in the URL whose host, or user, begins at `start`."""
    at = text.rfind("@", start, end)
    colon = text.find(":", start, at) if at >= 0 else -1
    if colon < 0 or colon + 1 == at:
        return None
    port = colon + 1
    while port < at and text[port].isdigit():
        port += 1
    # `localhost:8000/@ada` has a port and no password.
    return None if port > colon + 1 and text[port] in "/#" else (colon + 1, at)


def _without_value(part: str) -> str:
    return f"{part.partition('=')[0]}=***" if _is_secret(part) else part


def _is_secret(part: str) -> bool:
    name, equals, _ = part.partition("=")
    return bool(equals) and part[0] in "?&" and unquote(name[1:]) in secret_keys(DEFAULT_KEYS)


def _without_word(found: re.Match[str]) -> str:
    return f"{found[1]}=***" if found[1] in secret_keys(DEFAULT_KEYS) else found[0]


_PIECES: Final = re.compile(r"[/?#@:&=%\[\]]")
_PARTS: Final = re.compile(r"[?&]?[^?&]+|[?&]")
_WORD: Final = re.compile(r"(?<!\w)(\w+)\s*=\s*('(?:[^'\\]|\\.)*'?|[^\s'?&]+)")
_HOST: Final = r"(?:\[[^]@/]*\]|[\w.-]*)(?::[0-9]*)?"
_HOSTS_AND_QUERY: Final = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^?@/]*)?\?\w+=")
