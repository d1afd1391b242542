"""Start-up and shutdown hooks: run for each worker, and for each of its child processes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tasklib.core.context import WorkerState
from tasklib.errors import ExecutionError


async def call_hooks(hooks: Iterable[Callable[..., Any]], state: WorkerState) -> None:
    """Call each hook in turn, with the state if it takes one, and await what it gives to await."""
    for hook in hooks:
        outcome = hook(state) if inspect.signature(hook).parameters else hook()
        if inspect.isawaitable(outcome):
            await _uncancelled(hook, outcome)


async def _uncancelled(hook: Callable[..., Any], outcome: Awaitable[Any]) -> None:
    """Await what the hook gives; a cancellation that nobody of ours asked for is the hook's failure."""
    try:
        await outcome
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        name = getattr(hook, "__qualname__", repr(hook))
        raise ExecutionError(f"the hook {name} let a CancelledError of its own escape; catch it there") from error
