"""Flask: tasks run inside the application's context, so that `current_app` and extensions work in them.

from tasklib.contrib.flask import init_app

queue = TaskQueue("postgresql://localhost/app")
init_app(app, queue)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasklib.core.calls.middleware import Middleware
from tasklib.errors import ConfigurationError

if TYPE_CHECKING:
    from tasklib.core.calls.context import TaskContext
    from tasklib.queue import TaskQueue


def init_app(app: Any, queue: TaskQueue) -> None:
    """Push the application's context around each attempt of the queue's tasks; once for an application and queue.

    Examples:
        >>> import flask
        >>> from tasklib.contrib.flask import init_app
        >>> app = flask.Flask("shop")
        >>> init_app(app, queue)
        >>> @queue.task
        ... def greet() -> str:
        ...     return flask.current_app.name
        >>> task_id = greet.submit()
        >>> queue.process_batch()
        1
        >>> task_id.wait()
        'shop'
    """
    if app.extensions.setdefault("tasklib", queue) is not queue:
        raise ConfigurationError(f"{app!r} has another queue already; give that one, or make one application per queue")
    if not any(isinstance(each, AppContext) and each.app is app for each in queue.middleware):
        queue.add_middleware(AppContext(app))


class AppContext(Middleware):
    """Each attempt has an application context of its own; its teardown functions get the error of one that failed."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def before(self, ctx: TaskContext) -> None:
        """Push it."""
        pushed = self.app.app_context()
        pushed.push()
        ctx.scratch[self] = pushed

    def after(self, ctx: TaskContext, result: Any) -> None:
        """Pop it."""
        ctx.scratch.pop(self).pop(None)

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        """Pop it with the error."""
        ctx.scratch.pop(self).pop(error)
