"""TaskQueue: the one object everything else is a face of."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload
from uuid import UUID

from tasklib.clock import Clock, DatabaseClock
from tasklib.codec import plain
from tasklib.config import Config
from tasklib.context import TaskContext, current_context
from tasklib.definition import Definition, Registry, TaskKeywords, TaskOptions, check_name, default_name
from tasklib.errors import ConfigurationError, TaskDefinitionError, TaskNotFound, require_aware
from tasklib.explain import Explanation
from tasklib.explain import explain as explain_evidence
from tasklib.middleware import ErrorHook, Middleware
from tasklib.schedule import Declaration, Misfire, Overlap, Plan, Schedule
from tasklib.storage import connect
from tasklib.storage.database import Database
from tasklib.storage.operations import actions, controls, schedules, tasks, workers
from tasklib.storage.operations.controls import Limit, Pause
from tasklib.storage.operations.explain import gather_evidence
from tasklib.storage.statement import Operation
from tasklib.submission import Merger, SubmitKeywords, SubmitOptions, TaskFunction, new_task
from tasklib.task import NewTask, QueueStats, Task, TaskFilter, TaskId, TaskState, WorkerInfo
from tasklib.twin import operation
from tasklib.waiting import wait_async, wait_blocking

P = ParamSpec("P")
R = TypeVar("R")
Hook = Callable[..., Any]
HeaderSource = Callable[[], Mapping[str, Any]]
Tasks = list[Task]
Id = UUID | str


class Filters(TypedDict, total=False):
    """What `list`, `count` and the bulk actions can filter by, beside state and name."""

    tags: Mapping[str, Any] | None
    ids: Iterable[Id] | None
    unique_key: str | None
    concurrency_key: str | None
    search: str | None
    created_after: datetime | None
    created_before: datetime | None
    completed_before: datetime | None


class Scheduling(TypedDict, total=False):
    """What else can be decided about a schedule."""

    misfire: Misfire
    overlap: Overlap
    jitter: float
    starts_at: datetime | None
    ends_at: datetime | None
    options: Mapping[str, Any]


ENQUEUE_MAX_RETRIES = 2
"""Tasks submitted by name get three attempts unless somebody says otherwise."""


class TaskQueue:
    """A queue of durable tasks in one database.

    Every database operation has an awaiting twin with an `a` in front: `get` and `aget`, `cancel` and `acancel`.
    """

    def __init__(
        self, database: str | Config | None = None, *, registry: Registry | None = None, clock: Clock | None = None
    ) -> None:
        self.config = Config.of(database)
        self.registry = Registry() if registry is None else registry  # one without tasks yet is empty, so false
        self.clock: Clock = clock or DatabaseClock()
        self.startup_hooks: list[Hook] = []
        self.shutdown_hooks: list[Hook] = []
        self.middleware: list[Middleware] = []
        self.error_hooks: list[ErrorHook] = []
        self.header_sources: list[HeaderSource] = []
        self.declared_schedules: list[Plan] = []
        self._database = connect(self.config)
        self._merger = Merger(self._send)

    @property
    def database(self) -> Database:
        """Where the tasks are kept."""
        return self._database

    def __repr__(self) -> str:
        return f"<TaskQueue {self.config!r}>"

    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...
    @overload
    def task(
        self, /, *, name: str | None = None, **options: Unpack[TaskKeywords]
    ) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
    def task(self, function: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Make a function a task: `@queue.task` or `@queue.task(max_retries=5, timeout_seconds=30)`."""

        def decorate(plain_function: Callable[P, R]) -> TaskFunction[P, R]:
            return define(self.registry, lambda: self, plain_function, name, options)

        return decorate if function is None else decorate(function)

    def register_handler(
        self, name: str, handler: Callable[..., Any], *, payload: Any = None, **options: Unpack[TaskKeywords]
    ) -> None:
        """Handle tasks submitted by name; the handler takes the payload, or the Task if its parameter says so."""
        given = TaskOptions.for_task(name, **options)
        self.registry.add(Definition.for_handler(name, handler, given, payload))

    def unregister_handler(self, name: str) -> None:
        """Stop handling tasks of a name here; they stay pending for others."""
        self.registry.remove(name)

    def on_startup(self, hook: Hook) -> Hook:
        """Run a function when a worker starts; it may take the worker's state and put resources on it."""
        self.startup_hooks.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Run a function when a worker stops, last registered first."""
        self.shutdown_hooks.append(hook)
        return hook

    def add_middleware(self, middleware: Middleware) -> None:
        """Put hooks around every execution of this queue's tasks; the first one added is the outermost."""
        self.middleware.append(middleware)

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """Call a function with the context and the exception of every attempt that fails, for an error reporter."""
        self.error_hooks.append(hook)
        return hook

    def add_headers(self, source: HeaderSource) -> HeaderSource:
        """Ask a function at every submission for headers to carry along: tenant, request id, trace."""
        self.header_sources.append(source)
        return source

    def enqueue(
        self,
        name: str,
        payload: Any = None,
        *,
        max_attempts: int | None = None,
        run_after: datetime | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> TaskId:
        """Store a task by name; no function of that name is needed here."""
        new = self.new_by_name(name, payload, max_attempts=max_attempts, run_after=run_after, **options)
        return self.submit_new([new], options.get("connection"))[0]

    async def aenqueue(
        self,
        name: str,
        payload: Any = None,
        *,
        max_attempts: int | None = None,
        run_after: datetime | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> TaskId:
        """The awaiting form of `enqueue`."""
        new = self.new_by_name(name, payload, max_attempts=max_attempts, run_after=run_after, **options)
        return await self.asubmit_one(new, options.get("connection"))

    def new_task(self, definition: Definition, kwargs: Any, options: SubmitOptions) -> NewTask:
        """The row for a task of this queue, its arguments already plain JSON."""
        return self._new(definition.name, kwargs, options, definition.options, self.config.max_retries)

    def new_by_name(
        self,
        name: str,
        payload: Any = None,
        *,
        max_attempts: int | None = None,
        run_after: datetime | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> NewTask:
        """The row that `enqueue` would store, checked but not stored; `submit_new` stores many at once."""
        if max_attempts is not None:
            options["max_retries"] = _attempts(max_attempts) - 1
        if run_after is not None:
            options["run_at"] = run_after
        chosen = SubmitOptions().with_(**options)
        definition = self.registry.get(check_name(name))
        limit = self.config.max_payload_bytes
        if definition is not None:
            stored = definition.bind_payload({} if payload is None else payload, limit=limit)
            known = definition.options
        else:
            stored = plain({} if payload is None else payload, what=name, limit=limit)
            known = TaskOptions()
        return self._new(name, stored, chosen, known, ENQUEUE_MAX_RETRIES)

    def submit_new(self, new: Sequence[NewTask], connection: Any = None) -> list[TaskId]:
        """Store rows made by `new_task`: on the caller's connection, or in a transactional task, in its transaction."""
        connection = self._joined(connection)

        def submit() -> Operation[list[TaskId]]:
            return tasks.submit_tasks(new, self.clock.now())

        return self.database.run(submit) if connection is None else self.database.run_on(connection, submit)

    async def asubmit_new(self, new: Sequence[NewTask], connection: Any = None) -> list[TaskId]:
        """The awaiting form of `submit_new`."""
        connection = self._joined(connection)

        def submit() -> Operation[list[TaskId]]:
            return tasks.submit_tasks(new, self.clock.now())

        if connection is None:
            return await self.database.arun(submit)
        return await self.database.arun_on(connection, submit)

    async def asubmit_one(self, new: NewTask, connection: Any = None) -> TaskId:
        """Store one row, merged with others of the same moment."""
        if self._joined(connection) is None:
            return await self._merger.submit(new)
        return (await self.asubmit_new([new], connection))[0]

    @operation
    def get(self, task_id: Id) -> Operation[Task | None]:
        """The task with this id, or None."""
        parsed = parse_id(task_id)
        return None if parsed is None else (yield from tasks.get_task(parsed))

    aget = get.twin

    @operation
    def list(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        limit: int = 100,
        offset: int = 0,
        before: Task | None = None,
        **filters: Unpack[Filters],
    ) -> Operation[Tasks]:
        """Tasks matching the filters, newest first; `before` continues after the last task of a page."""
        which = task_filter(state, name, filters)
        position = None if before is None else before.seq
        limit, offset = _whole("limit", limit), _whole("offset", offset)
        return (yield from tasks.list_tasks(which, self.clock.now(), limit=limit, offset=offset, before=position))

    alist = list.twin

    @operation
    def count(
        self, *, state: str | Iterable[str] | None = None, name: str | None = None, **filters: Unpack[Filters]
    ) -> Operation[int]:
        """How many tasks match the filters."""
        return (yield from tasks.count_tasks(task_filter(state, name, filters), self.clock.now()))

    acount = count.twin

    @operation
    def stats(self) -> Operation[QueueStats]:
        """How many tasks stand where, in all and by name."""
        return (yield from tasks.count_by_state(self.clock.now()))

    astats = stats.twin

    def wait(self, task_id: Id, timeout: float | None = None) -> Task:
        """The finished task, once it is; WaitTimeout if that takes longer than `timeout` seconds."""
        return wait_blocking(self.database, require_id(task_id), timeout)

    async def await_(self, task_id: Id, timeout: float | None = None) -> Task:
        """The awaiting form of `wait`."""
        return await wait_async(self.database, require_id(task_id), timeout)

    @operation
    def retry(self, task_id: Id) -> Operation[Task]:
        """Start a failed, cancelled, buried or completed task anew, from zero attempts."""
        return (yield from actions.retry_task(require_id(task_id), self.clock.now()))

    aretry = retry.twin

    @operation
    def cancel(self, task_id: Id) -> Operation[Task]:
        """Cancel a waiting task at once, or ask the worker of a running one to stop it."""
        return (yield from actions.cancel_task(require_id(task_id), self.clock.now()))

    acancel = cancel.twin

    @operation
    def delete(self, task_id: Id) -> Operation[bool]:
        """Remove a finished task for good; True when it is gone."""
        yield from actions.delete_task(require_id(task_id))
        return True

    adelete = delete.twin

    @operation
    def retry_many(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[int]:
        """Start every matching task anew that may be; with `dry_run` only count the matches."""
        return (yield from self._act(actions.retry_matching, actions.RETRYABLE, state, name, dry_run, filters))

    aretry_many = retry_many.twin

    @operation
    def cancel_many(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[int]:
        """Cancel every matching task that is not finished; with `dry_run` only count the matches."""
        live = (TaskState.PENDING, TaskState.RUNNING, "retrying")
        return (yield from self._act(actions.cancel_matching, live, state, name, dry_run, filters))

    acancel_many = cancel_many.twin

    @operation
    def delete_many(
        self,
        *,
        state: str | Iterable[str] | None = None,
        name: str | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Operation[int]:
        """Remove every matching task that is finished; with `dry_run` only count the matches."""
        return (yield from self._act(actions.delete_matching, actions.RETRYABLE, state, name, dry_run, filters))

    adelete_many = delete_many.twin

    @operation
    def cleanup(
        self,
        *,
        older_than: datetime | timedelta | float,
        state: str | Iterable[str] = TaskState.COMPLETED,
        name: str | None = None,
    ) -> Operation[int]:
        """Remove tasks that ended before a moment, or longer ago than a time span; completed ones unless told more."""
        moment = older_than
        if not isinstance(moment, datetime):
            age = moment if isinstance(moment, timedelta) else timedelta(seconds=moment)
            moment = (self.clock.now() or datetime.now(UTC)) - age
        states = [TaskState(s) for s in _states(state, tuple(TaskState))]
        return (yield from actions.cleanup_tasks(require_aware(moment, "older_than"), states, name))

    acleanup = cleanup.twin

    @operation
    def pause(self, name: str | None = None, *, by: str | None = None, reason: str | None = None) -> Operation[None]:
        """Stop starting tasks, of one name or of all, on every worker; running ones finish.  Holds until `resume`."""
        yield from controls.pause(name, by=by, reason=reason, now=self.clock.now())

    apause = pause.twin

    @operation
    def resume(self, name: str | None = None) -> Operation[bool]:
        """Start tasks again; False if nothing was paused under that name."""
        return (yield from controls.resume(name))

    aresume = resume.twin

    @operation
    def is_paused(self, name: str | None = None) -> Operation[bool]:
        """Whether tasks of the name, or of all, are paused now."""
        pauses = yield from controls.list_pauses()
        return any(pause.name is None or pause.name == name for pause in pauses)

    ais_paused = is_paused.twin

    @operation
    def set_rate_limit(self, tasks_per_second: float, name: str | None = None) -> Operation[None]:
        """Let at most so many tasks, of one name or of all, start in a second over all workers; 0 is unlimited.

        What is not used fills up to one second's worth, and at least one.  Every attempt counts.
        """
        if not _is_rate(tasks_per_second):
            raise ConfigurationError(
                f"a rate limit is a number of tasks per second, 0 for unlimited, got {tasks_per_second!r}"
            )
        yield from controls.set_rate(name, float(tasks_per_second) or None, self.clock.now())

    aset_rate_limit = set_rate_limit.twin

    @operation
    def get_rate_limit(self, name: str | None = None) -> Operation[float]:
        """The rate limit of one name, or the one over all; 0 if there is none."""
        limits = yield from controls.list_limits(self.clock.now())
        return next((limit.rate for limit in limits if limit.name == name and limit.rate), 0.0)

    aget_rate_limit = get_rate_limit.twin

    @operation
    def set_concurrency_limit(self, count: int, name: str | None = None) -> Operation[None]:
        """Let at most so many tasks, of one name or of all, run at once over all workers; 0 is unlimited."""
        yield from controls.set_max_running(name, _whole("a concurrency limit", count) or None)

    aset_concurrency_limit = set_concurrency_limit.twin

    @operation
    def limits(self) -> Operation[Sequence[Limit]]:
        """The limits in force across all workers."""
        return (yield from controls.list_limits(self.clock.now()))

    alimits = limits.twin

    @operation
    def pauses(self) -> Operation[Sequence[Pause]]:
        """What is paused now, by whom and why."""
        return (yield from controls.list_pauses())

    apauses = pauses.twin

    @operation
    def workers(self) -> Operation[Sequence[WorkerInfo]]:
        """Every worker instance known, the most recently heard first."""
        return (yield from workers.list_workers(self.clock.now()))

    aworkers = workers.twin

    @operation
    def explain(self, task_id: Id) -> Operation[Explanation]:
        """Why the task is not running: every reason with its evidence and remedy, the one that binds first in front."""
        return explain_evidence((yield from gather_evidence(require_id(task_id), self.clock.now())))

    aexplain = explain.twin

    @operation
    def recover_stale_tasks(self) -> Operation[int]:
        """Take back every task whose worker is gone or whose lease has passed; returns how many."""
        recovery = yield from workers.recover_tasks(self.config.backoff, self.clock.now(), thorough=True)
        return recovery.tasks

    arecover_stale_tasks = recover_stale_tasks.twin

    def schedule(self, **decided: Any) -> Callable[[TaskFunction[P, R]], TaskFunction[P, R]]:
        """Run a task again and again: `@queue.schedule(cron="0 9 * * mon-fri", tz="Europe/Paris")` over `@queue.task`.

        The schedule is made, changed and removed with the code, by the workers that run it.
        """

        def declare(function: TaskFunction[P, R]) -> TaskFunction[P, R]:
            if not isinstance(function, TaskFunction):
                raise TaskDefinitionError(
                    f"@queue.schedule goes over a task; put @queue.task under it, on {function!r}"
                )
            kwargs = function.definition.bind((), decided.get("kwargs", {}))
            plan = Declaration.over(function.name, **{**decided, "kwargs": kwargs}).plan
            self.declared_schedules = [each for each in self.declared_schedules if each.name != plan.name] + [plan]
            return function

        return declare

    @operation
    def add_schedule(
        self,
        name: str,
        *,
        task: str,
        cron: str | None = None,
        every: float | None = None,
        tz: str = "UTC",
        kwargs: Any = None,
        **decided: Unpack[Scheduling],
    ) -> Operation[Schedule]:
        """Make a schedule, or change the one of that name: cron in a time zone, or every so many seconds."""
        stored = self.new_by_name(task, kwargs).kwargs
        plan = Plan(name=check_name(name), task=task, cron=cron, every=every, tz=tz, kwargs=stored, **decided)
        SubmitOptions().with_(**plan.options)
        return (yield from schedules.put_schedule(plan, self.clock.now()))

    aadd_schedule = add_schedule.twin

    @operation
    def schedules(self) -> Operation[Sequence[Schedule]]:
        """Every schedule, by name."""
        return (yield from schedules.list_schedules())

    aschedules = schedules.twin

    @operation
    def get_schedule(self, name: str) -> Operation[Schedule | None]:
        """The schedule of this name, or None."""
        return (yield from schedules.get_schedule(name))

    aget_schedule = get_schedule.twin

    @operation
    def remove_schedule(self, name: str) -> Operation[bool]:
        """Forget a schedule; tasks it has made stay.  False if there is none of that name."""
        return (yield from schedules.remove_schedule(name))

    aremove_schedule = remove_schedule.twin

    @operation
    def pause_schedule(self, name: str, *, by: str | None = None) -> Operation[bool]:
        """Let no more ticks of a schedule run; False if there is none of that name."""
        return (yield from schedules.pause_schedule(name, by, self.clock.now()))

    apause_schedule = pause_schedule.twin

    @operation
    def resume_schedule(self, name: str) -> Operation[bool]:
        """Let a schedule run again, from its next tick on; False if there is none of that name."""
        return (yield from schedules.resume_schedule(name, self.clock.now()))

    aresume_schedule = resume_schedule.twin

    @operation
    def run_schedule(self, name: str) -> Operation[TaskId | None]:
        """Make a task of the schedule at once, beside its ticks; None if there is none of that name."""
        return (yield from schedules.run_now(name, self.scheduled_task, self.clock.now()))

    arun_schedule = run_schedule.twin

    @operation
    def fire_schedules(self) -> Operation[int]:
        """Make the tasks of every tick that has come; workers do this by themselves.  Returns how many were made."""
        return (yield from schedules.fire_schedules(self.scheduled_task, self.clock.now()))

    afire_schedules = fire_schedules.twin

    def scheduled_task(self, plan: Plan) -> NewTask:
        """The row of a schedule's next task; its arguments were checked when the schedule was made."""
        definition = self.registry.get(plan.task)
        options = SubmitOptions().with_(**plan.options)
        known = TaskOptions() if definition is None else definition.options
        return self._new(plan.task, plan.kwargs, options, known, ENQUEUE_MAX_RETRIES)

    def process_batch(self, limit: int | None = None) -> int:
        """Run what is due now once, in this process, and return how many tasks were run."""
        return run_coroutine(lambda: self.aprocess_batch(limit))

    async def aprocess_batch(self, limit: int | None = None) -> int:
        """The awaiting form of `process_batch`."""
        from tasklib.worker import Worker, WorkerSettings

        return await Worker(self, WorkerSettings(concurrency=10, signals=False)).run_once(limit)

    def run(self, concurrency: int = 1, **settings: Any) -> None:
        """Work on this queue's tasks until the process is told to stop."""
        run_coroutine(lambda: self.arun(concurrency, **settings))

    async def arun(self, concurrency: int = 1, **settings: Any) -> None:
        """The awaiting form of `run`; cancelling it drains and stops the worker."""
        from tasklib.worker import Worker, WorkerSettings

        settings.setdefault("poll_interval_seconds", self.config.poll_interval_seconds)
        await Worker(self, WorkerSettings(concurrency=concurrency, **settings)).run()

    def asgi(self, *, auth: str | Callable[[Any], Any] | None, hosts: Iterable[str] | None = None) -> Any:
        """The HTTP service of this queue, to be served or mounted: `app.mount("/tasks", queue.asgi(auth="tokens"))`.

        `auth` has no default.  "tokens": every request brings one, made by `tasklib token create`.  "local": open to
        this machine until the first token exists.  A function of the request: the caller's role, or None to refuse.
        None: nothing is checked here, because the application around it does.
        """
        try:
            # Found by name: the layers below the service know nothing of it.
            http = importlib.import_module("tasklib.http.app")
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"the HTTP service needs {error.name}, which is not installed: pip install 'tasklib[serve]'"
            ) from error
        return http.create_app(self, auth=auth, hosts=hosts)

    def migrate(self) -> Sequence[str]:
        """Bring the database's tables up to date; returns the names of the migrations applied."""
        return self.database.migrate()

    def close(self) -> None:
        """Close every connection; the queue opens new ones if it is used again."""
        self.database.close()

    async def aclose(self) -> None:
        """Close every connection from within an event loop."""
        await self.database.aclose()

    def __enter__(self) -> TaskQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> TaskQueue:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _joined(self, connection: Any) -> Any:
        """The connection to submit on: the one given, or that of the transactional task of this queue running here."""
        running: TaskContext | None = current_context(None) if connection is None else None
        return connection if running is None else running.transaction_of(self.database)

    async def _send(self, new: Sequence[NewTask]) -> Sequence[TaskId]:
        return await self.asubmit_new(new)

    def _new(self, name: str, kwargs: Any, options: SubmitOptions, task: TaskOptions, max_retries: int) -> NewTask:
        running: TaskContext | None = current_context(None)
        if running is not None or self.header_sources:
            inherited = dict(running.headers) if running is not None else {}
            for source in self.header_sources:
                inherited.update(source())
            options = options.with_(headers={**inherited, **options.headers})
        if task.expires_after is not None and options.expires_at is None:
            start = options.run_at or self.clock.now() or datetime.now(UTC)
            expires_at = start + timedelta(seconds=float(options.delay_seconds) + task.expires_after)  # type: ignore[arg-type]
            options = options.with_(expires_at=expires_at)
        timeout = self.config.default_task_timeout_seconds
        return new_task(name, kwargs, options, task, max_retries=max_retries, timeout=timeout)

    def _act(
        self,
        action: Callable[[TaskFilter, datetime | None], Operation[int]],
        possible: Iterable[str],
        state: str | Iterable[str] | None,
        name: str | None,
        dry_run: bool,
        filters: Filters,
    ) -> Operation[int]:
        which = task_filter(state or possible, name, filters)
        now = self.clock.now()
        return (yield from tasks.count_tasks(which, now) if dry_run else action(which, now))


def define(
    registry: Registry,
    queue: Callable[[], TaskQueue],
    function: Callable[P, R],
    name: str | None,
    options: Mapping[str, Any],
) -> TaskFunction[P, R]:
    """Register a function as a task and give back the object that replaces it."""
    named = name or default_name(function)
    definition = Definition.for_function(function, name=named, options=TaskOptions.for_task(named, **options))
    registry.add(definition)
    return TaskFunction(queue, definition, function)


def parse_id(task_id: Id) -> UUID | None:
    """The id as a UUID, or None if it cannot be one."""
    if isinstance(task_id, UUID):
        return task_id
    try:
        return UUID(str(task_id))
    except ValueError:
        return None


def require_id(task_id: Id) -> UUID:
    """The id as a UUID; something that cannot be one is the id of no task."""
    parsed = parse_id(task_id)
    if parsed is None:
        raise TaskNotFound(task_id)
    return parsed


def task_filter(state: str | Iterable[str] | None, name: str | None, filters: Filters) -> TaskFilter:
    """The filter of keyword arguments; an unknown state or filter is an error that lists the known ones."""
    known = Filters.__annotations__
    unknown = sorted(set(filters) - set(known))
    if unknown:
        raise ConfigurationError(f"no such filter: {', '.join(unknown)}; the filters are {', '.join(sorted(known))}")
    ids = filters.get("ids")
    return TaskFilter(
        states=_states(state),
        name=name,
        tags=filters.get("tags"),
        ids=None if ids is None else tuple(require_id(each) for each in ids),
        unique_key=filters.get("unique_key"),
        concurrency_key=filters.get("concurrency_key"),
        search=filters.get("search"),
        created_after=filters.get("created_after"),
        created_before=filters.get("created_before"),
        completed_before=filters.get("completed_before"),
    )


def run_coroutine(make: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run a coroutine to its end, blocking; inside a running event loop on a thread with its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["value"] = asyncio.run(make())
        except BaseException as error:  # noqa: BLE001  raised again in the calling thread
            outcome["error"] = error

    thread = threading.Thread(target=work, name="tasklib-run")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    value: R = outcome["value"]
    return value


FILTER_STATES = (*TaskState, "delayed", "retrying")


def _states(state: str | Iterable[str] | None, known: Sequence[str] = FILTER_STATES) -> tuple[str, ...]:
    if state is None:
        return ()
    states = (state,) if isinstance(state, str) else tuple(state)
    for each in states:
        if each not in known:
            raise ConfigurationError(f"no such state: {each!r}; the states are {', '.join(known)}")
    return tuple(str(each) for each in states)


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ConfigurationError(f"{name} must be a whole number, 0 or more, got {value!r}")
    return value


def _attempts(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"max_attempts must be a whole number, 1 or more, got {value!r}")
    return value
