"""Doing something once, however often it is asked for under one key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tasklib.core.codec import dumps, loads
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.statement import BEGIN, Operation, Statement

KEEP: Final = timedelta(hours=24)
"""How long a key is remembered."""


@dataclass(frozen=True, slots=True)
class Once:
    """The outcome of work that is done once."""

    answer: Any
    """What the work answered, now or the first time; None if the key was taken by another request."""
    repeated: bool


def do_once(owner: str, key: str, fingerprint: str, work: Callable[[], Operation[Any]]) -> Operation[Once]:
    """Do the work and remember its JSON answer, in one transaction; or only answer again what it answered before."""
    key = f"{owner} {key}"  # A caller's key has no space in it, so that none can use another one's.
    yield BEGIN
    clock = yield from read_clock()
    yield Statement("forget_keys", {"before": clock - KEEP})
    if (yield Statement("take_key", {"key": key, "fingerprint": fingerprint})):
        answer = yield from work()
        yield Statement("answer_key", {"key": key, "answer": dumps(answer)})
        return Once(answer, repeated=False)
    row = (yield Statement("get_key", {"key": key}))[0]
    same = row["fingerprint"] == fingerprint
    return Once(loads(row["answer"]) if same else None, repeated=True)
