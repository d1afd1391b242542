"""What the audit log says of a request: who, from where, and about what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from fastapi import Request

from tasklib.http.security.auth import Principal
from tasklib.storage.operations.access.audit import AuditEntry

ANONYMOUS: Final = "anonymous"
"""In the place of a name where nobody has said who they are."""


def make_entry(request: Request, action: str, shown: Mapping[str, Any]) -> AuditEntry:
    """The entry; nothing in `shown` may be secret."""
    principal: Principal | None = getattr(request.state, "principal", None)
    return AuditEntry(
        actor=ANONYMOUS if principal is None else principal.name,
        role="none" if principal is None else str(principal.role),
        action=action,
        target=target_of(request),
        detail=shown,
        remote=request.client.host if request.client else None,
        request_id=getattr(request.state, "request_id", None),
    )


def target_of(request: Request) -> str | None:
    """What the request is about by its path; an id in the one spelling that finds it in the table."""
    named = next(iter(request.path_params.values()), None)
    try:
        return None if named is None else str(UUID(named))
    except ValueError:
        return storable(str(named))


def storable(text: str) -> str:
    """Up to 300 characters of the text, without what a database refuses: nobody keeps an entry out by that."""
    return text[:300].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
