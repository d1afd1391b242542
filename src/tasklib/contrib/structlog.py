"""structlog: what is logged during an attempt carries the task's id, name and attempt.

    from tasklib.contrib.structlog import bind

    bind(queue, carry=["request_id"])

Uses structlog's context variables: `structlog.contextvars.merge_contextvars` must be among its processors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tasklib.contrib.late import load
from tasklib.core.calls.middleware import Middleware

if TYPE_CHECKING:
    from tasklib.core.calls.context import TaskContext
    from tasklib.queue import TaskQueue


def bind(queue: TaskQueue, *, carry: Iterable[str] = ()) -> None:
    """Bind the task's details during each attempt; context variables named in `carry` travel from the submission.

    Examples:
        >>> import structlog
        >>> from tasklib.contrib.structlog import bind
        >>> bind(queue, carry=["request_id"])
        >>> @queue.task
        ... def greet() -> str:
        ...     return structlog.contextvars.get_contextvars()["request_id"]
        >>> with structlog.contextvars.bound_contextvars(request_id="r-17"):
        ...     task_id = greet.submit()
        >>> queue.process_batch()
        1
        >>> task_id.wait()
        'r-17'
    """
    names, contextvars = tuple(carry), load("structlog.contextvars", "structlog")

    def carried() -> Mapping[str, Any]:
        known = contextvars.get_contextvars()
        return {name: known[name] for name in names if name in known}

    if names:
        queue.add_headers(carried)
    queue.add_middleware(_Binding(names, contextvars))


class _Binding(Middleware):
    def __init__(self, carry: tuple[str, ...], contextvars: Any) -> None:
        self._carry = carry
        self._contextvars = contextvars

    def before(self, ctx: TaskContext) -> None:
        carried = {name: ctx.headers[name] for name in self._carry if name in ctx.headers}
        details = {"task_id": str(ctx.task.id), "task_name": ctx.task.name, "attempt": ctx.attempt}
        ctx.scratch[self] = self._contextvars.bind_contextvars(**carried, **details)

    def after(self, ctx: TaskContext, result: Any) -> None:
        self._unbind(ctx)

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        self._unbind(ctx)

    def _unbind(self, ctx: TaskContext) -> None:
        self._contextvars.reset_contextvars(**ctx.scratch.pop(self))
