"""Making the row of a new task from its arguments and options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tasklib.core.codec import plain
from tasklib.core.redaction import SECRETS_HEADER, marked_paths
from tasklib.core.task import NewTask
from tasklib.definition import Definition, TaskOptions
from tasklib.submission.submit_options import SubmitOptions


def new_task(
    name: str, kwargs: Any, options: SubmitOptions, task: TaskOptions, *, max_retries: int, timeout: float | None
) -> NewTask:
    """The row to store, from the options of the submission, of the task, and of the configuration, in that order."""
    from uuid_utils.compat import uuid7

    first = options.max_retries if options.max_retries is not None else task.max_retries
    limit = options.timeout_seconds if options.timeout_seconds is not None else task.timeout_seconds
    expires_at, expires_in = _expiry(options, task.expires_after)
    tags = {**task.tags, **(options.tags or {})}
    return NewTask(
        id=options.id or uuid7(),
        name=name,
        kwargs=kwargs,
        delay_seconds=float(options.delay_seconds),  # type: ignore[arg-type]
        run_at=options.run_at,
        max_retries=max_retries if first is None else first,
        timeout_seconds=timeout if limit is None else limit,
        priority=task.priority if options.priority is None else options.priority,
        tags=plain(tags, what=f"tags of {name}") if tags else {},
        unique_key=options.unique_key,
        on_conflict=options.on_conflict,
        concurrency_key=options.concurrency_key or task.key_for(name, tags, kwargs),
        headers=plain(dict(options.headers), what=f"headers of {name}") if options.headers else {},
        expires_at=expires_at,
        expires_in=expires_in,
        is_id_given=options.id is not None,
    )


def _expiry(options: SubmitOptions, after: float | None) -> tuple[datetime | None, float | None]:
    """The moment at which it expires, or in how many seconds by the database's clock, or neither."""
    if after is None or options.expires_at is not None:
        return options.expires_at, None
    if options.run_at is not None:
        return options.run_at + timedelta(seconds=after), None
    return None, float(options.delay_seconds) + after  # type: ignore[arg-type]


def mark_secrets(new: NewTask, definition: Definition | None) -> NewTask:
    """The row, marking which of its arguments are annotated as secret, so that front ends can hide them."""
    return with_secrets(new, () if definition is None else definition.secrets)


def with_secrets(new: NewTask, secrets: Iterable[str]) -> NewTask:
    """The row, marking these arguments as secret too."""
    marked = marked_paths(new.headers)
    more = [each for each in dict.fromkeys(secrets) if each not in marked]
    return replace(new, headers={**new.headers, SECRETS_HEADER: [*marked, *more]}) if more else new
