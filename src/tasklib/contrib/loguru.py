"""loguru: what is logged during an attempt carries the task's id, name and attempt in `record["extra"]`.

from tasklib.contrib.loguru import bind

bind(queue, carry=["request_id"])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tasklib.contrib.late import load
from tasklib.core.calls.middleware import Middleware

if TYPE_CHECKING:
    from tasklib.core.calls.context import TaskContext
    from tasklib.queue import TaskQueue


def bind(queue: TaskQueue, *, carry: Iterable[str] = ()) -> None:
    """Bind the task's details during each attempt, and the headers named in `carry`.

    loguru does not reveal what is bound at a submission: pass such values as headers, by
    `queue.add_headers` or as an option.

    Examples:
        >>> from tasklib.contrib.loguru import bind
        >>> bind(queue, carry=["tenant"])
        >>> task_id = add.options(headers={"tenant": "acme"}).submit(1)  # logged with tenant, task_id and task_name
    """
    queue.add_middleware(_Binding(tuple(carry), load("loguru", "loguru").logger))


class _Binding(Middleware):
    def __init__(self, carry: tuple[str, ...], logger: Any) -> None:
        self._carry = carry
        self._logger = logger

    def before(self, ctx: TaskContext) -> None:
        carried = {name: ctx.headers[name] for name in self._carry if name in ctx.headers}
        details = {"task_id": str(ctx.task.id), "task_name": ctx.task.name, "attempt": ctx.attempt}
        bound = self._logger.contextualize(**carried, **details)
        bound.__enter__()
        ctx.scratch[self] = bound

    def after(self, ctx: TaskContext, result: Any) -> None:
        ctx.scratch.pop(self).__exit__(None, None, None)

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        ctx.scratch.pop(self).__exit__(None, None, None)
