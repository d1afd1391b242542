"""Writes every change to the audit log: who, what, when, from where.  Refusals are written by `refusals.py`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from tasklib.http.admission.request_guard import SAFE_METHODS
from tasklib.http.parts import parts_of
from tasklib.http.security.audit_entry import action_of, make_entry
from tasklib.http.security.auth import Permission, permission_of
from tasklib.service.audit import AuditEntry


class AuditedRoute(APIRoute):
    """A route whose successful changes are in the audit log before they are answered."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler; after it the entry of a request that changed nothing stored, such as signing in.

        A worker's claims and heartbeats are in the tasks' own history.
        """
        handle = super().get_route_handler()
        if (self.methods or SAFE_METHODS) <= SAFE_METHODS or permission_of(self) is Permission.WORK:
            return handle

        async def audited(request: Request) -> Response:
            response = await handle(request)
            if not getattr(request.state, "is_in_log", False):
                entry = make_entry(request, self.name, {})
                await parts_of(request).service.audit_log.awrite(entry)
            return response

        return audited


def audit_of(request: Request, **detail: Any) -> AuditEntry:
    """The entry for the change of this request, which is written in the transaction of the change."""
    request.state.is_in_log = True
    return make_entry(request, action_of(request), detail)


def audit_unless(dry_run: bool, request: Request, **detail: Any) -> AuditEntry | None:
    """The entry for the change of this request; None for a dry run, which changes nothing and is not logged."""
    entry = audit_of(request, **detail)
    return None if dry_run else entry
