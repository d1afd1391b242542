"""Start-up and shutdown hooks: run for each worker, and for each of its child processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tasklib.context import WorkerState


async def call_hooks(hooks: Iterable[Callable[..., Any]], state: WorkerState) -> None:
    """Call each hook in turn, with the state if it takes one, and await what it gives to await."""
    for hook in hooks:
        outcome = hook(state) if inspect.signature(hook).parameters else hook()
        if inspect.isawaitable(outcome):
            await outcome
