"""Checks of the arguments of a queue's methods: ids, states and filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, cast
from uuid import UUID

from tasklib.core.numbers import is_number, is_whole
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import Task, TaskState
from tasklib.core.task_id import require_id
from tasklib.core.texts.search_text import path_of, read_search, text_of
from tasklib.core.time.clock import require_aware
from tasklib.errors import ConfigurationError

Id = UUID | str
FILTER_STATES = (*TaskState, "delayed", "waiting", "retrying")


class Filters(TypedDict, total=False):
    """The filters of `list`, `count` and the bulk actions, besides state and name."""

    tags: Mapping[str, Any] | None
    ids: Iterable[Id] | None
    unique_key: str | None
    concurrency_key: str | None
    fingerprint: str | None
    search: str | None
    arguments: Mapping[str, Any] | None
    worker: str | None
    release: str | None
    created_after: datetime | None
    created_before: datetime | None
    completed_after: datetime | None
    completed_before: datetime | None


ELSEWHERE: Final = {"status": "state", "type": "name", "task_type": "name", "tag": "tags", "id": "ids"}
"""Other names for filters, from other parts of this library and from other libraries."""
_MAPPINGS: Final = ("tags", "arguments")
_TIMES: Final = ("created_after", "created_before", "completed_after", "completed_before")


def task_filter(state: str | Iterable[str] | None, name: str | None, filters: Filters) -> TaskFilter:
    """The filter of keyword arguments; an unknown state or filter is an error that lists the known ones."""
    known = Filters.__annotations__
    unknown = sorted(set(filters) - set(known))
    if unknown:
        meant = "".join(f"; {name} is called {ELSEWHERE[name]} here" for name in unknown if name in ELSEWHERE)
        names = ", ".join(["state", "name", *sorted(known)])
        raise ConfigurationError(f"no such filter: {', '.join(unknown)}{meant}; the filters are {names}")
    given: dict[str, Any] = {"name": name, **filters}
    for each, value in given.items():
        if value is not None:
            given[each] = _checked(each, value)
    return TaskFilter(states=check_states(state), **_with_terms(given))


def _checked(name: str, value: Any) -> Any:
    """The value of a filter; one that the databases would read each in its own way is an error."""
    if name in _TIMES:
        return require_aware(value, name)
    if name == "ids":
        if isinstance(value, str | UUID) or not isinstance(value, Iterable):
            raise ConfigurationError(f"ids must be several ids, as in ids=[task_id], got {value!r:.80}")
        return tuple(require_id(each) for each in cast("Iterable[Id]", value))
    if name in _MAPPINGS:
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{name} must be a mapping of names to values, got {value!r:.80}")
    elif not isinstance(value, str):
        named = getattr(value, "name", None)
        hint = f"; write {named!r}" if isinstance(named, str) else ""
        raise ConfigurationError(f"{name} must be a string, got {value!r:.80}{hint}")
    return value


def _with_terms(given: dict[str, Any]) -> dict[str, Any]:
    """The filters with what the search text asks for; a filter that is given beside it counts before its term."""
    arguments = {path: text_of(value) for path, value in (given.pop("arguments", None) or {}).items()}
    for path in arguments:
        path_of(path)
    terms = read_search(given.get("search") or "")
    given["arguments"] = {**terms.arguments, **arguments} or None
    given["tags"] = {**terms.tags, **(given.get("tags") or {})} or None
    for name in ("worker", "release"):
        given[name] = given.get(name) or getattr(terms, name)
    return {**given, "search": terms.text, "duration": terms.duration, "wait": terms.wait}


def check_states(state: str | Iterable[str] | None, known: Sequence[str] = FILTER_STATES) -> tuple[str, ...]:
    """The given states, each checked; empty for None, and an empty collection is an error."""
    if state is None:
        return ()
    given: Any = state
    if not isinstance(given, Iterable):
        raise ConfigurationError(f"state must be a state or several, got {state!r}; the states are {', '.join(known)}")
    states = (state,) if isinstance(state, str) else tuple(state)
    if not states:
        # As a filter it would stand for all states, where an empty `ids` stands for no task.
        raise ConfigurationError(
            "state must name a state at least, got none of them; leave it out, or give None, for all"
        )
    for each in states:
        if each not in known:
            raise ConfigurationError(f"no such state: {each!r}; the states are {', '.join(known)}")
    return tuple(str(each) for each in states)


def check_position(before: Task | None) -> int | None:
    """Where a page goes on: behind the last task of the page before, or at the newest."""
    given: Any = before
    if before is not None and not isinstance(given, Task):
        raise ConfigurationError(
            f"before must be the last task of the page before, as in tasks[-1], got {before!r:.80}"
        )
    return None if before is None else before.seq


SLOWEST_RATE: Final = 1e-6
"""The lowest rate, in tasks per second: one task in eleven days."""


def is_rate(value: Any, *, above: float | None = None) -> bool:
    """Whether it is a number of tasks per second: 0 or more, or above something.

    One task in weeks is a pause, not a rate; and a number that PostgreSQL cannot compute with would stop every worker.
    """
    possible = is_number(value) and (value == 0 or SLOWEST_RATE <= value < 1e9)
    return possible and (above is None or value > above)


def check_pace(rate: float | None) -> float | None:
    """How many tasks come due in a second, if that is a rate; None stands for all at once."""
    if rate is not None and not is_rate(rate, above=0):
        raise ConfigurationError(f"a rate is a number of tasks per second above 0, or None, got {rate!r}")
    return rate


def check_whole(name: str, value: Any) -> int:
    """The number itself, if it is whole, not negative and fits an integer column."""
    if not is_whole(value) or not 0 <= value < 2**31:
        raise ConfigurationError(f"{name} must be a whole number, 0 or more, got {value!r}")
    return value


def check_priority(value: Any) -> int:
    """The number itself, if it is whole and fits an integer column."""
    if not is_whole(value) or not -(2**31) <= value < 2**31:
        raise ConfigurationError(f"a priority is a whole number that fits 32 bits, got {value!r}")
    return value
