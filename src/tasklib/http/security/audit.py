"""Every change is written down: who, what, when, from where; and so is what was refused (`refusals.py`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, cast
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import Field

from tasklib.core.codec import plain
from tasklib.http.errors import problems
from tasklib.http.schemas.fields import Answer, Input
from tasklib.http.security.audit_entry import make_entry
from tasklib.http.security.auth import Permission, needs, permission_of
from tasklib.queue import TaskQueue
from tasklib.storage.database import Database
from tasklib.storage.operations.access.audit import BEGUN, AuditEntry, list_audit, recorded, write_audit
from tasklib.storage.statement import Operation, T

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})

Told = Callable[[Any], "Mapping[str, Any] | None"]


class AuditedRoute(APIRoute):
    """A route whose successful changes are in the audit log before they are answered."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, and after it the entry of what changed nothing that is stored, such as signing in.

        A worker's claims and heartbeats are in the tasks' own history.
        """
        handle = super().get_route_handler()
        if (self.methods or SAFE) <= SAFE or permission_of(self) is Permission.WORK:
            return handle

        async def audited(request: Request) -> Response:
            response = await handle(request)
            if not getattr(request.state, "is_in_log", False):
                queue: TaskQueue = request.app.state.manage.queue
                entry = entry_of(request, self.name, getattr(request.state, "audit_detail", {}))
                await queue.database.arun(lambda: write_audit([entry], queue.clock.now()), repeatable=False)
            return response

        return audited


def note(request: Request, **detail: Any) -> None:
    """Say in the entry of this request what it was about, if it changes nothing that is stored."""
    request.state.audit_detail = detail


def changing(request: Request, told: Told | None = None, **detail: Any) -> TaskQueue:
    """The queue for the one change of this request: its operation writes the entry in its own transaction.

    `told` is asked what the result adds to the detail; None says that nothing was changed.
    """
    request.state.is_in_log = True
    action: str = request.scope["route"].name

    def entry(result: Any) -> AuditEntry | None:
        more = {} if told is None or result is BEGUN else told(result)
        return None if more is None else entry_of(request, action, {**detail, **more})

    queue: TaskQueue = request.app.state.manage.queue
    return queue.through(cast("Database", _Recording(queue, entry)))


class _Recording:
    """A database whose awaiting operations write an entry of the audit log in their own transaction."""

    def __init__(self, queue: TaskQueue, entry: Callable[[Any], AuditEntry | None]) -> None:
        self._queue = queue
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue.database, name)

    async def arun(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run the operation and write its entry, both or neither."""
        queue = self._queue
        return await queue.database.arun(
            lambda: recorded(make(), self._entry, queue.clock.now()), repeatable=repeatable
        )


def note_made(request: Request, action: str, made: UUID) -> AuditEntry:
    """The entry of this request, for a route that writes it itself, in the transaction of the change."""
    request.state.is_in_log = True
    return make_entry(request, action, {"id": str(made)})


class Entry(Answer):
    """One change."""

    seq: int
    at: datetime
    actor: str
    role: str
    action: str
    target: str | None
    detail: dict[str, Any]
    remote: str | None
    request_id: str | None


class Entries(Answer):
    """Changes, the newest first."""

    entries: list[Entry]


class AuditQuery(Input):
    """Which part of the log."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    before: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(None, description="`seq` of the last entry seen.")


router = APIRouter(prefix="/api/audit", tags=["security"], route_class=AuditedRoute)


@router.get("", responses=problems(400, 401, 403, 503), **needs(Permission.ADMIN))
async def read_audit(query: Annotated[AuditQuery, Query()], request: Request) -> Entries:
    """The audit log, the newest entry first."""
    queue: TaskQueue = request.app.state.manage.queue
    found = await queue.database.arun(lambda: list_audit(limit=query.limit, before=query.before))
    names = AuditEntry.__slots__
    return Entries(
        entries=[
            Entry(seq=each.seq, at=each.at, **{name: getattr(each.entry, name) for name in names}) for each in found
        ]
    )


def entry_of(request: Request, action: str, detail: Mapping[str, Any]) -> AuditEntry:
    """What the log says of this request."""
    noted = plain({name: value for name, value in detail.items() if value is not None}, what="audit")
    return make_entry(request, action, request.app.state.manage.redactor.value(noted))
