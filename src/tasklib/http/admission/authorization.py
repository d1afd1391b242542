"""Whether a request is allowed: by its caller, its route, its content, and the rate of its caller."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import Request

from tasklib.core.schedule import UNIQUE_KEY_PREFIX
from tasklib.http.errors import Refused
from tasklib.http.parts import parts_of
from tasklib.http.schemas.inputs import CreateOptions, CreateTask
from tasklib.http.security.auth import Permission, permission_of, principal_of
from tasklib.http.security.local import sign_of_proxy

REPEATABLE: Final = frozenset({"id", "status", "tag"})
"""Parameters of a query that may be given more than once."""
REPEATABLE_AT: Final[Mapping[str, frozenset[str]]] = {"/api/scale": frozenset({"type"})}
"""The same, of one route."""


async def refuse_repeated(request: Request) -> None:
    """Refuse a request that gives a parameter twice where one is meant: we cannot guess which one counts."""
    if not request.scope["query_string"]:
        return
    path: str = getattr(request.scope.get("route"), "path", "")
    several = REPEATABLE | REPEATABLE_AT.get(path, frozenset())
    given = Counter(name for name, _ in request.query_params.multi_items() if name not in several)
    for name, times in given.items():
        if times > 1:
            raise Refused(400, "invalid-request", f"{name}: given {times} times, allowed once", field=name)


async def authorize(request: Request) -> None:
    """Refuse the request unless its route's permission is granted to its caller."""
    permission = permission_of(request.scope.get("route"))
    if permission is Permission.PUBLIC:
        return
    await admit(request, permission)


async def admit(request: Request, permission: Permission | None) -> None:
    """Identify the caller, and refuse the request unless it has the permission; without one nobody is admitted."""
    principal = await parts_of(request).identify(request)
    if principal is None:
        raise _unknown(request)
    request.state.principal = principal
    require(request, permission)


def require(request: Request, permission: Permission | None, what: str = "this") -> None:
    """Refuse the request unless its caller has the permission, for a part of it that needs more than its route."""
    principal = principal_of(request)
    if permission is None or not principal.may(permission):
        raise Refused(
            403, "forbidden", f"the role {principal.role} may not do {what}; it needs the permission: {permission}"
        )


def _unknown(request: Request) -> Refused:
    said = "a valid token is needed: send the header `Authorization: Bearer tl_…`; make one with: tasklib token create"
    proxy = sign_of_proxy(request) if parts_of(request).opens_to_this_machine else None
    if proxy is not None:
        said += (
            f"; without tokens only this machine itself is admitted, and this request came through a proxy ({proxy})"
        )
    return Refused(401, "token-required", said, headers={"WWW-Authenticate": 'Bearer realm="tasklib"'})


def allow_creation(request: Request, bodies: Sequence[CreateTask]) -> None:
    """Refuse the request unless its caller may create all of these: 403 if it may not, 429 if it is too fast."""
    require(request, Permission.SUBMIT)
    for body in bodies:
        more = _beyond_creating(body.options)
        if more is not None:
            require(request, Permission.OPERATE, more)
    allow_submission(request, len(bodies))


def _beyond_creating(options: CreateOptions) -> str | None:
    """What a submission does besides adding a task; None if nothing."""
    if options.repeat is not None:
        return "this: options.repeat makes or changes a schedule"
    if options.unique_key is not None and options.unique_key.startswith(UNIQUE_KEY_PREFIX):
        return f"this: keys that begin with {UNIQUE_KEY_PREFIX} are those of schedules, which it would hold up"
    if options.on_conflict == "replace":
        return "this: options.onConflict replace changes a stored task, whoever created it"
    return None


def allow_submission(request: Request, count: int = 1) -> None:
    """Refuse the request with 429 if its caller submits faster than `submit_rate_limit` allows."""
    wait = parts_of(request).throttle.take(principal_of(request).identity, count)
    if wait:
        raise Refused(
            429,
            "too-many-submissions",
            f"this caller submits faster than the service allows; send it again in {math.ceil(wait)} s",
            headers={"Retry-After": str(math.ceil(wait))},
        )
