"""Where tracing and error reporting attach: to every queue of the program, and around each submission."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet

from tasklib.core.codec import size_of
from tasklib.core.task import NewTask, TaskBatch


@dataclass(frozen=True, slots=True)
class Sending:
    """Tasks that are about to be stored: what may be said about them, which excludes their input."""

    name: str
    """Of all of them, or of the first where they differ."""
    ids: tuple[str, ...]
    """Of the only one; none for a batch."""
    count: int
    input_bytes: Callable[[], int] | None = None
    """Returns the length of a single task's input as JSON text."""


class Sender(Protocol):
    """Called for each submission: returns a block to run it in, which yields headers for the tasks."""

    def __call__(self, sending: Sending, /) -> AbstractContextManager[Mapping[str, Any]]:
        """The block; an exception of the submission passes through it."""
        ...


Chunk = Sequence[NewTask] | TaskBatch


def send_through(senders: Sequence[Sender], new: Chunk, stack: ExitStack) -> Chunk:
    """The tasks with the headers that the senders give; the senders' blocks are left with the stack."""
    headers = headers_from(senders, _described(new), stack)
    if not headers:
        return new
    if isinstance(new, TaskBatch):
        return replace(new, like=_carrying(new.like, headers))
    return [_carrying(each, headers) for each in new]


def headers_from(senders: Sequence[Sender], sending: Sending, stack: ExitStack) -> dict[str, Any]:
    """The headers that the senders give; their blocks are left with the stack."""
    headers: dict[str, Any] = {}
    for sender in senders:
        headers.update(stack.enter_context(sender(sending)))
    return headers


def _described(new: Chunk) -> Sending:
    if isinstance(new, TaskBatch):
        return Sending(new.like.name, (), new.count)
    if len(new) > 1:
        return Sending(new[0].name, (), len(new))
    return Sending(new[0].name, (str(new[0].id),), 1, partial(size_of, new[0].kwargs))


def _carrying(new: NewTask, headers: Mapping[str, Any]) -> NewTask:
    return replace(new, headers={**new.headers, **headers})


class Instrumentation:
    """Something that attaches to every queue, those that are made later too, until it is removed."""

    def attach(self, queue: Any) -> None:
        """Attach to one queue."""

    def detach(self, queue: Any) -> None:
        """Undo it."""


def instrument_queues(instrumentation: Instrumentation) -> None:
    """Attach to every queue of this program, now and later."""
    with _lock:
        _instrumentations.append(instrumentation)
        queues = list(_queues)
    for queue in queues:
        instrumentation.attach(queue)


def uninstrument_queues(instrumentation: Instrumentation) -> None:
    """Detach from every queue."""
    with _lock:
        if instrumentation in _instrumentations:
            _instrumentations.remove(instrumentation)
        queues = list(_queues)
    for queue in queues:
        instrumentation.detach(queue)


def note_queue(queue: Any) -> None:
    """A queue was made: what instruments all of them attaches to it."""
    with _lock:
        _queues.add(queue)
        waiting = list(_instrumentations)
    for each in waiting:
        each.attach(queue)


_lock = threading.Lock()
_queues: WeakSet[Any] = WeakSet()
_instrumentations: list[Instrumentation] = []


def remove_all(of: list[Any], condition: Callable[[Any], bool]) -> None:
    """Take out of a list, in place, what fulfils the condition: workers hold the list itself."""
    of[:] = [each for each in of if not condition(each)]
