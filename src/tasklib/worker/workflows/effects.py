"""The effects that a workflow's logic yields: requests to the journal, calls of the user's functions, and waits.

The logic is written once, as generators that yield these; a driver carries them out, blocking or awaiting.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from tasklib.storage.statement import Operation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the journal: its name and its JSON parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the user's function as a step."""

    key: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Transact:
    """The same in a transaction; `record` makes its last statement from what the function returned."""

    call: Call
    record: Callable[[Any], Operation[Any]]


@dataclass(frozen=True, slots=True)
class WaitInSlot:
    """Wait while the attempt keeps its slot."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Suspend:
    """Wait for this step without a slot: the attempt ends, and the function runs again when the step is due."""

    waits_for: str
    key: str
    seconds: float | None
    fillable: bool = False
    """Whether another process may fill the step, as with an event."""


Effect: TypeAlias = Request | Call | Transact | WaitInSlot | Suspend
Logic: TypeAlias = Generator[Effect, Any, T]
