"""Names of keys that sound like a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final

DEFAULT_KEYS: Final = (
    "*password*,*passwd*,*passphrase*,*secret*,*token,*api_key*,*apikey*,authorization,*credential*,*private_key*"
)
LONG_KEY: Final = 200
"""Longer keys are not cached: real ones are short, and hostile ones would fill the cache."""


class SecretKeys:
    """Patterns of keys whose values are secret; `apiKey`, `API-Key` and `api_key` are one key."""

    __slots__ = ("_known", "_pattern", "_words")

    def __init__(self, patterns: str) -> None:
        """The patterns are separated by commas."""
        given = [each for each in patterns.split(",") if each.strip()]
        spelled = [translate(each) for pattern in given for each in _spellings(pattern)]
        self._pattern = re.compile("|".join(spelled)) if spelled else None
        self._known = lru_cache(4096)(self._matches)
        self._words = tuple(dict.fromkeys(_longest_word(each) for each in given))
        """Lower-case words without hyphens and underscores; a text with none of them contains none of the keys."""

    def __contains__(self, key: Any) -> bool:
        name = str(key)
        return self._known(name) if len(name) <= LONG_KEY else self._matches(name)

    def may_be_in(self, text: str) -> bool:
        """False if certainly none of the keys is in the text; reads it `passes` times."""
        if not self._words or not ("=" in text or ":" in text):
            return False
        bare = text.lower().replace("_", "").replace("-", "")
        return any(word in bare for word in self._words)

    @property
    def passes(self) -> int:
        """How many times `may_be_in` reads a text; the cost of redaction is counted in characters read."""
        return 5 + len(self._words)

    def _matches(self, key: str) -> bool:
        return self._pattern is not None and self._pattern.match(_normal(key)) is not None


secret_keys = lru_cache(16)(SecretKeys)
"""One object for the same patterns, because compiling them takes long."""


def _spellings(pattern: str) -> Iterator[str]:
    """The pattern, and the same without underscores: nothing separates the words of `PRIVATEKey`."""
    normal = _normal(pattern)
    yield normal
    joined = _INNER.sub("", normal)
    if joined != normal:
        yield joined


def _longest_word(pattern: str) -> str:
    literal = _normal(pattern).replace("_", "")
    if "[" in literal:
        return ""
    return max(_WILD.split(literal), key=len)


def _normal(key: str) -> str:
    return _BORDER.sub("_", key.strip()).replace("-", "_").lower()


_BORDER: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_INNER: Final = re.compile(r"(?<=[a-z0-9])_(?=[a-z0-9])")
_WILD: Final = re.compile(r"[*?]")
