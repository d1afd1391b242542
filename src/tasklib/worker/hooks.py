"""Start-up and shutdown hooks: run for each worker, and for each of its child processes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tasklib.core.calls.context import WorkerState
from tasklib.errors import ExecutionError


async def call_hooks(hooks: Iterable[Callable[..., Any]], state: WorkerState) -> None:
    """Call one hook after the other, with the state if it takes one, and await what is awaitable."""
    for hook in hooks:
        outcome = hook(state) if inspect.signature(hook).parameters else hook()
        if inspect.isawaitable(outcome):
            await _await_hook(hook, outcome)


async def _await_hook(hook: Callable[..., Any], outcome: Awaitable[Any]) -> None:
    """Await the hook; a cancellation that the worker did not ask for is the hook's failure."""
    try:
        await outcome
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        name = getattr(hook, "__qualname__", repr(hook))
        raise ExecutionError(f"the hook {name} let a CancelledError of its own escape; catch it there") from error
