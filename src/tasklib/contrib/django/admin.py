"""Tasks and schedules in Django's admin, usable however large the table is.

The pages are those of the service that all front ends share: found by index or by walking a bounded way through the
newest tasks, never counted, and without secrets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.text import Truncator

from tasklib.contrib.django.backend import TasklibBackend, find_tasks, known_tasks
from tasklib.contrib.django.calls import TaskName
from tasklib.contrib.django.framework import task_backends
from tasklib.contrib.django.middleware import announce_ends
from tasklib.contrib.django.models import Schedule, Task
from tasklib.core.codec import dumps
from tasklib.core.lifecycle import Action, Phase, allows, phase_of
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import Task as StoredTask
from tasklib.core.task import TaskState
from tasklib.errors import TaskLibError, TaskNotFound
from tasklib.service.pages import Start
from tasklib.service.service import QueueService

AFTER: Final = "after"
"""The parameter that says where a page begins: after the task of this position."""
STATES: Final = ("pending", "delayed", "running", "completed", "retrying", "failed", "cancelled", "buried")


def admin_backend() -> TasklibBackend:
    """The backend whose tasks the admin shows: the first of ours in TASKS."""
    for alias in task_backends.settings:
        if isinstance(task_backends[alias], TasklibBackend):
            return task_backends[alias]
    raise LookupError("TASKS has no TasklibBackend")


class StateFilter(admin.SimpleListFilter):
    """By state; `delayed` are those of pending that are not due, `retrying` those of failed that will run again."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        """Every state."""
        return [(state, state) for state in STATES]

    def queryset(self, request: Any, queryset: Any) -> Any:
        """Unchanged: the page is not made by a queryset."""
        return queryset


class NameFilter(admin.SimpleListFilter):
    """By task; the choices are the tasks that this program knows, so that no table is read for them."""

    title = "task"
    parameter_name = "name"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        """Every known task in every queue."""
        find_tasks()  # a web process may not have imported them yet
        backend = admin_backend()
        paths = sorted(known_tasks(backend.alias))
        names = [str(TaskName(queue, path)) for path in paths for queue in sorted(backend.queues or {"default"})]
        return [(name, name) for name in names]

    def queryset(self, request: Any, queryset: Any) -> Any:
        """Unchanged: the page is not made by a queryset."""
        return queryset


class TaskChangeList(ChangeList):
    """A page of tasks, newest first, that begins anywhere without reading what comes before."""

    def get_filters_params(self, params: Any = None) -> Any:
        """The parameters of filters; the place of the page is none."""
        found = super().get_filters_params(params)
        found.pop(AFTER, None)
        return found

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> Any:
        """A link with other parameters, from the first page on unless it says where to begin."""
        return super().get_query_string(
            new_params, [*(remove or ()), *(() if AFTER in (new_params or {}) else (AFTER,))]
        )

    def get_results(self, request: Any) -> None:
        """Read the page."""
        service = QueueService(admin_backend().queue)
        limit = self.list_per_page
        place = request.GET.get(AFTER, "")
        start = Start(int(place)) if place.isdecimal() else Start()
        page = service.listing(self._wanted(request, service), limit=limit, start=start)
        self.result_list = [as_model(task) for task in page.tasks]
        self.result_count = len(self.result_list)
        # Equal: all there is to say; otherwise Django offers to show all.
        self.full_result_count = None if self.query or self.has_active_filters else self.result_count
        self.show_admin_actions = bool(self.result_list)
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(self.result_list, limit)
        self.has_newer = bool(place)
        self.older = None if page.next is None else self.get_query_string({AFTER: str(page.next.below)})
        self.newest = self.get_query_string()

    def _wanted(self, request: Any, service: QueueService) -> TaskFilter:
        state, name = request.GET.get("state"), request.GET.get("name")
        text = (self.query or "").strip()
        states = (state,) if state in STATES else ()
        if text:
            try:
                return TaskFilter(states=states, name=name or None, ids=(service.find_id(text),))
            except TaskLibError:
                return TaskFilter(states=states, name=name or None, search=text)
        return TaskFilter(states=states, name=name or None)


@admin.register(Task)
class TaskAdmin(admin.ModelAdmin):
    """Tasks: see why, retry, cancel."""

    list_display = ("task", "status", "enqueued", "finished", "attempts", "queue", "arguments")
    list_filter = (StateFilter, NameFilter)
    search_fields = ("id",)
    search_help_text = "An id, or a word in arguments, tags or errors of recent tasks."
    list_per_page = 50
    show_full_result_count = False
    show_facets = getattr(getattr(admin, "ShowFacets", None), "NEVER", None)
    sortable_by = ()
    actions = ("retry_selected", "cancel_selected")

    @admin.display(description="task")
    def task(self, row: Any) -> str:
        """The path of the function."""
        return TaskName.parse(row.name).path

    @admin.display(description="queue")
    def queue(self, row: Any) -> str:
        """The queue it waits in."""
        return TaskName.parse(row.name).queue

    @admin.display(description="state")
    def status(self, row: Any) -> Any:
        """The state, with what the framework calls it."""
        return format_html('<span class="tasklib-state tasklib-{}">{}</span>', row.phase, row.phase)

    @admin.display(description="arguments")
    def arguments(self, row: Any) -> str:
        """The start of its arguments, secrets hidden."""
        return Truncator(dumps(row.kwargs)).chars(60)

    @admin.display(description="enqueued")
    def enqueued(self, row: Any) -> Any:
        """When it was stored."""
        return _moment(row.created_at)

    @admin.display(description="finished")
    def finished(self, row: Any) -> Any:
        """When it ended."""
        return _moment(row.completed_at)

    @admin.action(description="Retry selected tasks", permissions=["change"])
    def retry_selected(self, request: Any, queryset: Any) -> None:
        """Run them again from the first attempt on."""
        self._act(request, queryset, Action.RETRY, "retried")

    @admin.action(description="Cancel selected tasks", permissions=["change"])
    def cancel_selected(self, request: Any, queryset: Any) -> None:
        """Cancel those that wait, and ask those that run to end."""
        self._act(request, queryset, Action.CANCEL, "cancelled")

    def get_changelist(self, request: Any, **kwargs: Any) -> type[ChangeList]:
        """Ours, which counts nothing."""
        return TaskChangeList

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Unchanged: actions get the tasks that were selected, whatever was searched for."""
        return queryset, False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """The list, with a link to the dashboard."""
        return super().changelist_view(request, {**(extra_context or {}), **_links(), "title": "Tasks"})

    def change_view(self, request: Any, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        """One task: its arguments, attempts and errors, why it is not running, and what can be done."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        service = QueueService(admin_backend().queue)
        try:
            task = service.get(object_id)
        except TaskNotFound:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
        if request.method == "POST":
            return self._act_on_one(request, task)
        row = as_model(task)
        name = TaskName.parse(task.name)
        context = {
            **self.admin_site.each_context(request),
            **_links(str(task.id)),
            "title": name.path,
            "subtitle": str(task.id),
            "opts": self.opts,
            "original": name.path,
            "change": True,
            "has_view_permission": True,
            "task": task,
            "row": row,
            "name": name,
            "payload": _pretty(task.kwargs),
            "result": None if task.result is None else _pretty(task.result.get("value")),
            "tags": _pretty(task.tags) if task.tags else "",
            "why": _reasons(service, task),
            "has_change_permission": self.has_change_permission(request),
            # Completed tasks run again only if a person names that state, as everywhere.
            "can_retry": allows(task, Action.RETRY) and task.state is not TaskState.COMPLETED,
            "can_cancel": allows(task, Action.CANCEL),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/tasklib/task/change_form.html", context)

    def has_add_permission(self, request: Any) -> bool:
        """Never: tasks are enqueued by the program."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Never: `get_queue().cleanup()` and retention remove finished tasks, in bounded steps."""
        return False

    def _act_on_one(self, request: Any, task: StoredTask) -> Any:
        if not self.has_change_permission(request):
            raise PermissionDenied
        action = Action.RETRY if "_retry" in request.POST else Action.CANCEL
        self._act(request, [as_model(task)], action, "retried" if action is Action.RETRY else "cancelled")
        return HttpResponseRedirect(request.get_full_path())

    def _act(self, request: Any, rows: Iterable[Any], action: Action, done: str) -> None:
        backend = admin_backend()
        service = QueueService(backend.queue)
        changed: list[StoredTask] = []
        for row in rows:
            try:
                changed.append(service.act(action, row.pk))
            except TaskLibError as error:
                self.message_user(request, str(error), messages.WARNING)
            else:
                self.log_change(request, row, f"{done} by hand")
        announce_ends(backend, [str(task.id) for task in changed if action is Action.CANCEL and task.completed_at])
        if changed:
            many = f"{len(changed)} tasks were" if len(changed) > 1 else "The task was"
            asked = any(task.completed_at is None for task in changed) and action is Action.CANCEL
            self.message_user(request, f"{many} {'asked to end' if asked else done}.", messages.SUCCESS)


@admin.register(Schedule)
class ScheduleAdmin(admin.ModelAdmin):
    """Schedules: see when they run, pause them, run one now."""

    list_display = ("name", "task", "when", "next_run_at", "last_run_at", "is_running", "error")
    ordering = ("name",)
    show_full_result_count = False
    actions = ("pause", "resume", "run_now")

    @admin.display(description="task")
    def task(self, row: Any) -> str:
        """What it runs."""
        return str(_of(row.plan, "task"))

    @admin.display(description="when")
    def when(self, row: Any) -> str:
        """Its cron expression, or its interval."""
        return str(_of(row.plan, "cron") or f"every {_of(row.plan, 'every')} s")

    @admin.display(description="runs", boolean=True)
    def is_running(self, row: Any) -> bool:
        """Whether it makes tasks."""
        return row.paused_at is None

    @admin.action(description="Pause selected schedules", permissions=["change"])
    def pause(self, request: Any, queryset: Any) -> None:
        """Let no more ticks run."""
        by = request.user.get_username()
        self._each(request, queryset, lambda name: admin_backend().queue.pause_schedule(name, by=by), "paused")

    @admin.action(description="Resume selected schedules", permissions=["change"])
    def resume(self, request: Any, queryset: Any) -> None:
        """Let them run again, from the next tick on."""
        self._each(request, queryset, admin_backend().queue.resume_schedule, "resumed")

    @admin.action(description="Run selected schedules now", permissions=["change"])
    def run_now(self, request: Any, queryset: Any) -> None:
        """Make a task of each, beside its ticks."""
        self._each(request, queryset, admin_backend().queue.run_schedule, "run")

    def has_add_permission(self, request: Any) -> bool:
        """Never: schedules are declared in settings, or added by `get_queue().add_schedule()`."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Never: a declared schedule goes with its declaration."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """For the actions only; a schedule's own page shows it."""
        return obj is None and bool(super().has_change_permission(request))

    def _each(self, request: Any, queryset: Any, act: Callable[[str], Any], done: str) -> None:
        for row in queryset:
            act(row.name)
            self.log_change(request, row, f"{done} by hand")
        self.message_user(request, f"The schedules were {done}.", messages.SUCCESS)


def as_model(task: StoredTask) -> Any:
    """The task as a row of the model, without asking the database."""
    own = {field.attname for field in Task._meta.concrete_fields}  # noqa: SLF001  Django's name for the description
    row = Task(**{name: getattr(task, name) for name in own if hasattr(task, name)})
    phase = phase_of(task)
    is_delayed = phase is Phase.PENDING and task.scheduled_at > task.created_at and task.attempts == 0
    row.phase = "delayed" if is_delayed else str(phase)
    return row


def _moment(moment: datetime | None) -> str:
    """The time in few characters, in the project's own zone."""
    return "" if moment is None else date_format(timezone.template_localtime(moment), "Y-m-d H:i:s")


def _links(task_id: str = "") -> dict[str, Any]:
    url = str(admin_backend().options.get("dashboard_url", ""))
    if urlsplit(url).scheme not in ("http", "https", ""):
        url = ""
    return {"dashboard_url": f"{url.rstrip('/')}/tasks/{task_id}" if url and task_id else url}


def _reasons(service: QueueService, task: StoredTask) -> list[str]:
    if task.completed_at is not None:
        return []
    return [str(reason.text) for reason in service.explain(task.id).reasons]


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _of(plan: Any, key: str) -> Any:
    return plan.get(key) if isinstance(plan, Mapping) else None
