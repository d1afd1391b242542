"""Actions on tasks that are stored: retry, cancel, set the priority, delete, redrive, clean up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Unpack

from tasklib.core.lifecycle import CLEANUP_STATES, Action, states_for
from tasklib.core.queue_info import ErrorGroup, TaskFilter
from tasklib.core.task import Task, TaskState
from tasklib.core.task_id import require_id
from tasklib.core.time.clock import require_aware
from tasklib.errors import ConfigurationError, seconds_of
from tasklib.queue.arguments import (
    Filters,
    Id,
    check_pace,
    check_priority,
    check_states,
    check_whole,
    task_filter,
)
from tasklib.queue.base import QueueBase
from tasklib.queue.change_log import if_any, logged
from tasklib.queue.sync_async import operation
from tasklib.storage.operations import actions, errors
from tasklib.storage.operations.clock import start_of_age
from tasklib.storage.statement import Operation


class ActsOnTasks(QueueBase):
    """Retry, cancel, prioritize, delete, one or many, and clean up."""

    @operation
    def retry(self, task_id: Id, *, from_step: str | None = None, from_scratch: bool = False) -> Operation[Task]:
        """Restart a failed, cancelled, buried or completed task, from zero attempts.

        A workflow resumes at the step that failed; `from_step` forgets the step of that key and those after it,
        `from_scratch` all that it has recorded.  One whose undos were submitted runs again only from scratch, once the
        undo tasks have ended.  What was skipped in a flow waits again when what it follows is retried.

        Examples:
            >>> task_id = divide.submit(1, 0)
            >>> queue.process_batch()
            1
            >>> task = queue.retry(task_id)
            >>> task.state.value, task.attempts
            ('pending', 0)
        """
        if from_step is not None and from_scratch:
            raise ConfigurationError("retry takes from_step= or from_scratch=True, one of them")
        asked = require_id(task_id)
        return (yield from actions.retry_task(asked, from_step=from_step, from_scratch=from_scratch))

    aretry = retry.as_async

    @operation
    def cancel(self, task_id: Id) -> Operation[Task]:
        """Cancel a waiting task at once, or ask the worker of a running one to stop it.

        Examples:
            >>> task_id = add.options(delay_seconds=3600).submit(1)
            >>> queue.cancel(task_id).state.value
            'cancelled'
        """
        return (yield from actions.cancel_task(require_id(task_id)))

    acancel = cancel.as_async

    @operation
    def set_priority(self, task_id: Id, priority: int) -> Operation[Task]:
        """Change the priority of a waiting task; for a running one it counts from its next attempt on.

        Examples:
            >>> task_id = add.submit(1)
            >>> queue.set_priority(task_id, 9).priority
            9
        """
        return (yield from actions.set_priority(require_id(task_id), check_priority(priority)))

    aset_priority = set_priority.as_async

    @operation
    def delete(self, task_id: Id) -> Operation[bool]:
        """Remove a finished task for good; returns True.

        Examples:
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            1
            >>> queue.delete(task_id), queue.get(task_id)
            (True, None)
        """
        yield from actions.delete_task(require_id(task_id))
        return True

    adelete = delete.as_async

    @operation
    def retry_many(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[int]:
        """Restart every matching task that failed or was buried, or of the given states; `dry_run` only counts.

        They come due one after the other, `rate` in a second; without a rate all at once.

        Examples:
            >>> ids = divide.submit_many([{"a": 1, "b": 0}, {"a": 2, "b": 0}, {"a": 2, "b": 1}])
            >>> queue.process_batch()
            3
            >>> queue.retry_many(name="divide", dry_run=True)
            2
            >>> queue.retry_many(name="divide")
            2
        """
        pace = None if check_pace(rate) is None else actions.Pace(float(rate or 0))
        which = task_filter(state, name, filters)
        return (yield from self._act_on_matching(Action.RETRY, which, dry_run, pace=pace))

    aretry_many = retry_many.as_async

    @operation
    def cancel_many(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[int]:
        """Cancel every matching task that has not ended; with `dry_run` only count those.

        Examples:
            >>> ids = add.submit_many({"a": number} for number in range(100))
            >>> queue.cancel_many(name="add")
            100
        """
        return (yield from self._act_on_matching(Action.CANCEL, task_filter(state, name, filters), dry_run))

    acancel_many = cancel_many.as_async

    @operation
    def set_priority_many(
        self,
        priority: int,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[int]:
        """Give every matching task that has not ended this priority; with `dry_run` only count those.

        Examples:
            >>> ids = add.submit_many({"a": number} for number in range(100))
            >>> queue.set_priority_many(5, name="add", state="pending")
            100
        """
        which = task_filter(state, name, filters)
        return (yield from self._act_on_matching(Action.PRIORITIZE, which, dry_run, check_priority(priority)))

    aset_priority_many = set_priority_many.as_async

    @operation
    def delete_many(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[int]:
        """Remove every matching task that failed or was buried, or of the given states; `dry_run` only counts.

        Examples:
            >>> task_id = divide.submit(1, 0)
            >>> queue.process_batch()
            1
            >>> queue.delete_many(name="divide", created_before=datetime.now(UTC))
            1
        """
        return (yield from self._act_on_matching(Action.DELETE, task_filter(state, name, filters), dry_run))

    adelete_many = delete_many.as_async

    def _act_on_matching(
        self,
        action: Action,
        which: TaskFilter,
        dry_run: bool,
        priority: int | None = None,
        pace: actions.Pace | None = None,
    ) -> Operation[int]:
        if dry_run:
            return (yield from actions.count_matching(action, which))
        work = actions.act_on_matching(action, which, priority=priority, pace=pace)
        rate = None if pace is None else pace.rate
        return (
            yield from logged(work, "act_on_matching", added=if_any, action=action.value, type=which.name, rate=rate)
        )

    @operation
    def errors(self, name: str | None = None, *, limit: int = 100) -> Operation[Sequence[ErrorGroup]]:
        """The tasks that failed for good or were buried, grouped by name and kind of error, the latest first.

        Examples:
            >>> ids = divide.submit_many([{"a": 1, "b": 0}, {"a": 2, "b": 0}])
            >>> queue.process_batch()
            2
            >>> [group] = queue.errors()
            >>> group.name, group.count, group.message
            ('divide', 2, 'ZeroDivisionError: division by zero')
        """
        return (yield from errors.list_errors(name, check_whole("limit", limit)))

    aerrors = errors.as_async

    @operation
    def redrive(self, group: ErrorGroup | str, *, rate: float | None = None, dry_run: bool = False) -> Operation[int]:
        """Restart every task of a group of `errors()`, from zero attempts; returns how many.

        They come due one after the other, `rate` in a second; without a rate all at once.  `dry_run` only counts.

        Examples:
            >>> ids = divide.submit_many([{"a": 1, "b": 0}, {"a": 2, "b": 0}])
            >>> queue.process_batch()
            2
            >>> [group] = queue.errors()
            >>> queue.redrive(group, rate=10)  # one every tenth of a second
            2
        """
        check_pace(rate)
        found = group if isinstance(group, ErrorGroup) else (yield from self._group(group))
        which = errors.dead_letters(found.name, found.fingerprint or "")
        if dry_run:
            return (yield from actions.count_matching(Action.RETRY, which))
        work = errors.redrive(which, rate)
        return (yield from logged(work, "redrive", added=if_any, type=found.name, rate=rate))

    aredrive = redrive.as_async

    def _group(self, group_id: str) -> Operation[ErrorGroup]:
        for found in (yield from errors.list_errors(None, errors.MOST_GROUPS)):
            if found.id == group_id:
                return found
        raise ConfigurationError(f"no group of errors has the id {group_id!r}; queue.errors() lists them")

    @operation
    def cleanup(
        self,
        *,
        older_than: datetime | timedelta | float,
        state: str | Iterable[str] = CLEANUP_STATES,
        name: str | None = None,
    ) -> Operation[int]:
        """Remove tasks that ended before a moment, or longer ago than a time span; completed ones by default.

        Examples:
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            1
            >>> queue.cleanup(older_than=timedelta(days=30))
            0
            >>> queue.cleanup(older_than=datetime.now(UTC), state=["completed", "failed"])
            1
        """
        states = states_for(Action.DELETE, check_states(state, tuple(TaskState)))
        if isinstance(older_than, datetime):
            moment = require_aware(older_than, "older_than")
        else:
            moment = yield from start_of_age(timedelta(seconds=seconds_of(older_than)))
        work = actions.cleanup_tasks(moment, states, name)
        return (yield from logged(work, "clean_up", added=if_any, type=name))

    acleanup = cleanup.as_async
