"""Every change is written down: who, what, when, from where."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import Field

from tasklib.codec import plain
from tasklib.errors import StorageError
from tasklib.http.auth import Permission, needs, permission_of, principal_of
from tasklib.http.errors import problems
from tasklib.http.fields import Answer, Input
from tasklib.queue import TaskQueue
from tasklib.storage.operations.audit import AuditEntry, list_audit, write_audit

logger = logging.getLogger("tasklib.http")

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
KEPT_WHILE_AWAY: Final = 10_000


class AuditedRoute(APIRoute):
    """A route whose successful changes are in the audit log before they are answered."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, and after it the entry; a worker's beats and endings are in the tasks' own history."""
        handle = super().get_route_handler()
        if (self.methods or SAFE) <= SAFE or permission_of(self) is Permission.WORK:
            return handle

        async def audited(request: Request) -> Response:
            response = await handle(request)
            if not getattr(request.state, "is_in_log", False):
                log: AuditLog = request.app.state.audit
                await log.write(entry_of(request, self.name))
            return response

        return audited


def note(request: Request, **detail: Any) -> None:
    """Add what is worth knowing to the entry of this request."""
    request.state.audit_detail = {name: value for name, value in detail.items() if value is not None}


def note_at_once(request: Request, action: str, **detail: Any) -> AuditEntry:
    """The entry of this request, for a route that writes it itself, in the transaction of the change."""
    note(request, **detail)
    request.state.is_in_log = True
    return entry_of(request, action)


class AuditLog:
    """Writes entries, those of the same moment in one statement."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._waiting: list[AuditEntry] = []
        self._writing = asyncio.Lock()

    async def write(self, entry: AuditEntry) -> None:
        """Return once the entry is stored; while the database is away it is kept, logged, and written with the next."""
        self._waiting.append(entry)
        async with self._writing:
            if not any(each is entry for each in self._waiting):
                return  # whoever held the lock has written it
            batch, self._waiting = self._waiting, []
            try:
                await self._queue.database.arun(lambda: write_audit(batch, self._queue.clock.now()), repeatable=False)
            except StorageError:
                self._waiting = (batch + self._waiting)[-KEPT_WHILE_AWAY:]
                logger.exception("not in the audit log yet: %s", batch)


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


def entry_of(request: Request, action: str) -> AuditEntry:
    """What the log says of this request."""
    principal = principal_of(request)
    noted = plain(getattr(request.state, "audit_detail", {}), what="audit")
    detail = request.app.state.manage.redactor.value(noted)
    return AuditEntry(
        actor=principal.name,
        role=str(principal.role),
        action=action,
        target=next(iter(request.path_params.values()), None),
        detail=detail,
        remote=request.client.host if request.client else None,
        request_id=getattr(request.state, "request_id", None),
    )
