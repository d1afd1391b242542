"""Removing secrets from texts: known ones, values beside keys that sound secret, passwords in URLs.

The text is read by a few passes that never go back further than a key is long.  Each search is for one character of a
set, so that it costs what it passes over; `steps` adds that up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from tasklib.core.codec import MASK
from tasklib.core.numbers import is_number
from tasklib.core.redaction.keys import SecretKeys, secret_keys
from tasklib.core.redaction.search import SecretSearch, Span
from tasklib.core.redaction.urls import password_in

LONGEST_TEXT: Final = 1 << 21
"""More characters of a text are not looked through, and not shown either."""
LONGEST_KEY: Final = 100
CUT: Final = "\n… cut …"


class Texts:
    """Removes secrets from texts, also as Python, JSON or a URL quotes them, and values beside secret keys."""

    __slots__ = ("_keys", "_search", "_steps")

    def __init__(self, secrets: Iterable[str] = (), keys: SecretKeys | None = None) -> None:
        self._keys = secret_keys("") if keys is None else keys
        self._search = SecretSearch(secrets)
        self._steps = 0

    @property
    def steps(self) -> int:
        """How many characters were looked at so far, those looked at twice counted twice."""
        return self._steps + self._search.steps

    def text(self, text: str | None) -> str | None:
        """The text without them."""
        return text and self.clean(text)

    def clean(self, text: str) -> str:
        """The text without them; of a longer one than can be looked through only its beginning."""
        if self._search.too_many:
            return MASK
        whole = len(text)
        if whole > LONGEST_TEXT:
            text = text[:LONGEST_TEXT]
        spans = self._search.spans(text) if self._search else []
        if self._keys.may_be_in(text):
            spans += self._beside_keys(text)
        spans += self._in_urls(text)
        self._steps += self._keys.passes * len(text) + len(spans)
        if whole > len(text):
            # What begins here may be a secret that ends behind the cut.
            return _masked(text, spans, len(text) - self._search.longest) + CUT
        return _masked(text, spans, len(text)) if spans else text

    def everywhere(self, value: Any) -> Any:
        """The value with every text and every number in it so."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.everywhere(entry) for key, entry in _items(value)}
        if isinstance(value, list | tuple):
            return [self.everywhere(entry) for entry in cast("Sequence[Any]", value)]
        if is_number(value) and self._search:
            return value if self.text(written := str(value)) == written else MASK
        return value

    def _beside_keys(self, text: str) -> list[Span]:
        """`password=hunter2`, `"apiKey": "…"`, `'token': ['…']`: as programs write them; no prose: `token: expired`."""
        found, position = list[Span](), 0
        while (separator := self._next(_SEPARATOR, text, position)) < len(text):
            key = self._key_before(text, separator, position)
            position = separator + 1
            if key and key in self._keys:
                start, end = self._value(text, position)
                if start < end:
                    found.append((start, end))
                    position = end
        return found

    def _key_before(self, text: str, separator: int, floor: int) -> str:
        """The key that ends before a separator; before a colon only one in quotes."""
        end = separator
        while end > floor and text[end - 1] in " \t":
            end -= 1
        quoted = end > floor and text[end - 1] in "\"'"
        if not quoted and text[separator] == ":":
            self._steps += separator - end
            return ""
        if quoted:
            end -= 1
            while end > floor and text[end - 1] == "\\":
                end -= 1
        start, floor = end, max(floor, end - LONGEST_KEY)
        while start > floor and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
            start -= 1
        self._steps += separator - start
        return text[start:end]

    def _value(self, text: str, start: int) -> Span:
        """From where to where the value goes that begins here; quotes around it are not part of it."""
        while start < len(text) and (text[start] in "=>" or text[start].isspace()):
            start += 1
            self._steps += 1
        if start == len(text):
            return start, start
        escapes = start
        while escapes < len(text) and text[escapes] == "\\":
            escapes += 1
        self._steps += escapes - start
        if text[escapes : escapes + 1] in ('"', "'") and escapes > start:  # quoted inside something quoted
            quote = text[start : escapes + 1]
            end = text.find(quote, escapes + 1)
            end = len(text) if end < 0 else end
            self._steps += end - escapes
            return escapes + 1, end
        if text[start] in "\"'":
            return start + 1, self._closing(text, start)
        return start, self._bracket_end(text, start) if text[start] in _OPENING else self._word_end(text, start)

    def _closing(self, text: str, start: int) -> int:
        """Where the quote is that closes the one at `start`; the end of the text if none does."""
        marks, position = _IN_QUOTES[text[start]], start + 1
        while (position := self._next(marks, text, position)) < len(text) and text[position] == "\\":
            position += 2
        return min(position, len(text))

    def _bracket_end(self, text: str, start: int) -> int:
        """Behind the bracket that closes the one at `start`; the end of the text if none does."""
        depth, position = 0, start
        while (position := self._next(_STRUCTURE, text, position)) < len(text):
            if text[position] in "\"'":
                position = self._closing(text, position)
            else:
                depth += 1 if text[position] in _OPENING else -1
            position += 1
            if not depth:
                return min(position, len(text))
        return len(text)

    def _word_end(self, text: str, start: int) -> int:
        """Where a value without quotes ends; with the text in quotes of `b'…'` and `Name('…')`."""
        end = self._next(_END_OF_WORD, text, start)
        while end < len(text) and text[end] in "\"'" and (text[start:end] in ("b", "B") or text[end - 1] in _OPENING):
            end = self._next(_END_OF_WORD, text, min(self._closing(text, end) + 1, len(text)))
        return end

    def _in_urls(self, text: str) -> list[Span]:
        found, position = list[Span](), 0
        while (start := text.find("://", position)) >= 0:
            position = self._next(_END_OF_URL, text, start + 3)
            span = password_in(text, start + 3, position)
            if span is not None:
                found.append(span)
            self._steps += 2 * (position - start)
        return found

    def _next(self, one_of: re.Pattern[str], text: str, start: int) -> int:
        """Where the next of some characters is; the end of the text if there is none."""
        found = one_of.search(text, start)
        end = len(text) if found is None else found.start()
        self._steps += max(0, end - start) + 1
        return end


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return cast("Mapping[Any, Any]", value).items()


def _masked(text: str, spans: list[Span], end: int) -> str:
    """The text up to `end` with the mask in place of each span; those that touch are one."""
    pieces, done = list[str](), 0
    for start, stop in sorted(spans):
        if start >= end:
            break
        if start > done or not pieces:
            pieces += (text[done:start], MASK)
        done = max(done, stop)
    pieces.append(text[done : max(end, done)])
    return "".join(pieces)


# One character of a set each: what a search costs is what it passes over.
_SEPARATOR: Final = re.compile("[=:]")
_IN_QUOTES: Final = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_STRUCTURE: Final = re.compile(r"[\[\](){}\"']")
_END_OF_WORD: Final = re.compile(r"[\s,;&)}\]\"']")
_END_OF_URL: Final = re.compile(r"[\s\"'<>`]")
_OPENING: Final = "([{"
