"""Start-up and shutdown hooks: run for each worker, and for each of its child processes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tasklib.core.calls.resources import WorkerState
from tasklib.errors import ExecutionError


async def call_hooks(hooks: Iterable[Callable[..., Any]], state: WorkerState) -> None:
    """Call one hook after the other, with the state if it takes one, and await what is awaitable.

    A cancellation that the worker did not ask for is the hook's failure.
    """
    for hook in hooks:
        outcome = hook(state) if inspect.signature(hook).parameters else hook()
        try:
            if inspect.isawaitable(outcome):
                await outcome
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            name = getattr(hook, "__qualname__", repr(hook))
            raise ExecutionError(f"the hook {name} let a CancelledError of its own escape; catch it there") from error
