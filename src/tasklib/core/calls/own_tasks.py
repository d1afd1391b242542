"""A worker's own asyncio tasks and event loop, which the functions it runs can neither cancel nor stop.

`for task in asyncio.all_tasks(): task.cancel()` or `loop.stop()` in a task would end its worker, and the attempt would
look like one that a stopping worker releases: it would run again for ever.  So both raise where they are called.
The attempt fails and its error shows the line; the worker, and what else runs in it, goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tasklib.core.calls.base_exceptions import is_in_signal_handler
from tasklib.core.calls.current import running_attempt

T = TypeVar("T")


class OwnTask(asyncio.Task[T]):
    """An asyncio task that a function run by a worker cannot cancel, unless it is the one that runs this function.

    A task that awaits one is protected too: asyncio cancels what a task awaits before the task itself.
    """

    __slots__ = ("owner",)

    owner: object
    """The attempt that runs here, as `running_attempt` gives it: it may cancel itself, as `asyncio.timeout` does."""

    def cancel(self, msg: Any | None = None) -> bool:
        """As any task's; raises RuntimeError in a function that this task does not run."""
        attempt = _asking_attempt()
        if attempt is not None and attempt is not self.owner and asyncio.current_task() is not self:
            raise RuntimeError(
                "a task cannot cancel asyncio tasks of its worker, which run other tasks too; cancel only what it has "
                "made itself (asyncio.all_tasks() has everybody's), and stop a worker by the event given as `stop`"
            )
        return super().cancel(msg)


def own_task(work: Coroutine[Any, Any, T], *, owner: object = None) -> asyncio.Task[T]:
    """The work in an asyncio task that tasks cannot cancel; a worker that is run by a task gets an ordinary one."""
    if running_attempt() is not None:
        return asyncio.ensure_future(work)
    task: OwnTask[T] = OwnTask(work, loop=asyncio.get_running_loop())
    task.owner = owner
    return task


@contextmanager
def owning_tasks() -> Generator[None]:
    """Asyncio tasks that a library makes inside the block are the worker's own; nothing else may be awaited there."""
    if running_attempt() is not None:
        yield
        return
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    loop.set_task_factory(_make)
    try:
        yield
    finally:
        loop.set_task_factory(before)


def keep_running(loop: asyncio.AbstractEventLoop) -> None:
    """From now on `loop.stop()` raises RuntimeError in a function that a worker runs; everybody else may call it."""
    if running_attempt() is None and not isinstance(loop.stop, _Stop):
        with suppress(AttributeError):  # a loop that lets nothing be replaced
            loop.stop = _Stop(loop.stop)  # type: ignore[method-assign]


class _Stop:
    """`loop.stop` of a loop that has run a worker."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def __call__(self) -> None:
        if _asking_attempt() is not None:
            raise RuntimeError(
                "a task cannot stop the event loop of its worker, which runs other tasks too; return or raise to end "
                "this task, and stop a worker by the event given as `stop`"
            )
        self._stop()


def _make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: OwnTask[Any] = OwnTask(work, loop=loop, **options)
    task.owner = None
    return task


def _asking_attempt() -> object:
    """The attempt whose code is running; None for a signal's handler, which runs inside whatever it interrupts."""
    attempt = running_attempt()
    return None if attempt is None or is_in_signal_handler() else attempt
