"""Finding many secrets in one pass over a text, however many there are and whatever they have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus

SHORTEST: Final = 4
"""A shorter secret is hidden where it is stored, but not searched for in texts: it would be found everywhere."""
MOST_CHARACTERS: Final = 1 << 16
"""If all spellings together have more characters, texts are hidden completely instead of searched."""
FEW: Final = 8
"""Up to this many secrets are first searched one by one, which is faster where none is found."""
LONGEST_NUMBER: Final = 100
"""The longest number that is also searched in its other spellings."""

Span: TypeAlias = tuple[int, int]


class SecretSearch:
    """Finds every spelling of some secrets: an automaton (Aho and Corasick's) that reads each character once."""

    __slots__ = ("_fallback", "_forms", "_longest_ending", "_next", "longest", "steps", "too_many")

    def __init__(self, secrets: Iterable[str]) -> None:
        forms, characters = set[str](), 0
        self.too_many = False
        for form in (form for each in secrets for form in _spellings(each)):
            if form in forms:
                continue
            characters += len(form)
            if characters > MOST_CHARACTERS:
                self.too_many = True
                break
            forms.add(form)
        self._forms = tuple(forms)
        self.longest = max(map(len, forms), default=0)
        self.steps = 0
        """How many characters were looked at so far."""
        self._next: list[dict[str, int]] = []
        self._fallback: list[int] = []
        self._longest_ending: list[int] = []
        """How long the longest spelling is that ends in each state."""

    def __bool__(self) -> bool:
        return bool(self._forms)

    def spans(self, text: str) -> list[Span]:
        """Where each one begins and ends in the text; they may overlap."""
        if len(self._forms) <= FEW:
            self.steps += len(text) * len(self._forms)
            if not any(form in text for form in self._forms):
                return []
        if not self._next:
            self._build()
        return self._found(text)

    def _found(self, text: str) -> list[Span]:
        found, state, falls = list[Span](), 0, 0
        following, fallback, ends = self._next, self._fallback, self._longest_ending
        for position, character in enumerate(text, 1):
            while state and character not in following[state]:
                state = fallback[state]
                falls += 1
            state = following[state].get(character, 0)
            if ends[state]:
                found.append((position - ends[state], position))
        self.steps += len(text) + falls
        return found

    def _build(self) -> None:
        following, ends = [dict[str, int]()], [0]
        for form in self._forms:
            state = 0
            for character in form:
                if character not in following[state]:
                    following[state][character] = len(following)
                    following.append({})
                    ends.append(0)
                state = following[state][character]
            ends[state] = len(form)
        self._next, self._longest_ending = following, ends
        self._fallback = self._fallbacks()
        self.steps += len(following)

    def _fallbacks(self) -> list[int]:
        """For each state the longest other state that is a suffix of it; shorter states come first."""
        following, ends = self._next, self._longest_ending
        fallback, waiting = [0] * len(following), list(following[0].values())
        for state in waiting:
            for character, after in following[state].items():
                back = fallback[state]
                while back and character not in following[back]:
                    back = fallback[back]
                    self.steps += 1
                fallback[after] = following[back].get(character, 0)
                ends[after] = ends[after] or ends[fallback[after]]
                waiting.append(after)
        return fallback


def _spellings(secret: str) -> Iterator[str]:
    """The secret as Python, JSON and URLs write it, each of its lines, and the ways to print it if it is a number."""
    if len(secret) > MOST_CHARACTERS:
        yield secret
        return
    written = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    written |= _in_urls(secret)
    written |= set(secret.splitlines())
    written |= set(_numbers(secret))
    yield from (form for form in written if len(form) >= SHORTEST)


def _in_urls(secret: str) -> set[str]:
    try:
        encoded = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    except UnicodeEncodeError:  # a lone surrogate
        return set()
    return encoded | {_small_digits(each) for each in encoded}


def _small_digits(encoded: str) -> str:
    """`%c3%b6` for `%C3%B6`."""
    first, *rest = encoded.split("%")
    return "%".join((first, *(each[:2].lower() + each[2:] for each in rest)))


def _numbers(secret: str) -> Iterator[str]:
    if len(secret) > LONGEST_NUMBER:
        return
    try:
        number = int(secret)
    except ValueError:
        try:
            yield repr(float(secret))
        except ValueError:
            return
    else:
        yield str(number)
        yield f"{number:,}"
        yield f"{number:_}"
