"""Authentication and roles: every route names a permission, every caller has a role; what is not granted is refused."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, Protocol

from fastapi import Request

from tasklib.errors import ConfigurationError
from tasklib.http.errors import Refused, problems
from tasklib.http.security.local import is_from_this_machine
from tasklib.http.security.tokens import TokenCheck
from tasklib.service.tokens import Role, Tokens

logger = logging.getLogger("tasklib.http")

NOTHING_MORE: Final[Mapping[int | str, Any]] = {}


class Permission(StrEnum):
    """What a caller needs to use a route."""

    PUBLIC = "public"
    """Nothing: health only."""
    SUBMIT = "submit"
    LOOK = "look"
    """Read one task by its id."""
    READ = "read"
    WORK = "work"
    EMIT = "emit"
    """Emit an event to one task, answer its question, spend for it; a worker only for tasks that it holds."""
    OPERATE = "operate"
    ADMIN = "admin"


_VIEWER = frozenset({Permission.LOOK, Permission.READ})
_OPERATOR = _VIEWER | {Permission.SUBMIT, Permission.EMIT, Permission.OPERATE}
GRANTS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.PRODUCER: frozenset({Permission.SUBMIT, Permission.LOOK}),
    Role.WORKER: frozenset({Permission.WORK, Permission.LOOK, Permission.EMIT}),
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: _OPERATOR | {Permission.WORK, Permission.ADMIN},
}
"""What each role may do."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller and its role."""

    name: str
    role: Role
    caller: str = ""
    """Distinguishes callers of one name, such as a token's id; the name itself if left out."""

    @property
    def identity(self) -> str:
        """The key under which this caller's rates, idempotency keys and streams are counted."""
        return self.caller or f"name:{self.name}"

    def may(self, permission: Permission) -> bool:
        """Whether this caller's role grants it."""
        return permission in GRANTS[self.role]


Authorize = Callable[[Request], "str | Principal | Awaitable[str | Principal | None] | None"]
"""The host application's own check: the caller's role, a Principal, or None for nobody."""

Auth = Literal["tokens", "local"] | Authorize | None
"""`tokens`: every request brings one.  `local`: open to this machine itself, not to what a proxy on it passes on, until
the first token exists.  A function: the application around us decides.  None: no check here at all."""


class Identify(Protocol):
    """Identifies the caller of a request."""

    async def __call__(self, request: Request) -> Principal | None:
        """The caller, or None if it is not authenticated."""
        ...


def needs(permission: Permission, *statuses: int, also: Mapping[int | str, Any] = NOTHING_MORE) -> dict[str, Any]:
    """The keywords of a route's decorator: its permission, without which it answers nobody, and its problems.

    `statuses` are those of its problems beside the ones of every route that is not public, `also` other answers.
    """
    extra: dict[str, Any] = {"x-permission": permission.value}
    if permission is not Permission.PUBLIC:
        extra["security"] = [{"token": []}]
        statuses = (*statuses, 401, 403, 503)
    return {"openapi_extra": extra, "responses": {**also, **problems(*sorted(statuses))}}


def permission_of(route: Any) -> Permission | None:
    """What a route has declared."""
    declared = (getattr(route, "openapi_extra", None) or {}).get("x-permission")
    return None if declared is None else Permission(declared)


def principal_of(request: Request) -> Principal:
    """The caller; set on every route that is not public."""
    principal: Principal = request.state.principal
    return principal


def identifier(tokens: Tokens, auth: Auth) -> Identify:
    """The way of authentication that `auth` means."""
    if auth is None:
        return _anybody
    if callable(auth):
        return _Callback(auth)
    if auth not in ("tokens", "local"):
        raise ConfigurationError(f"auth is 'tokens', 'local', a function of the request, or None; got {auth!r}")
    return Bearer(TokenCheck(tokens), open_without=auth == "local")


async def _anybody(request: Request) -> Principal | None:
    return Principal("anonymous", Role.ADMIN)


class _Callback:
    def __init__(self, function: Authorize) -> None:
        self._function = function

    async def __call__(self, request: Request) -> Principal | None:
        answer: Any = self._function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        name, caller = "application", ""
        if isinstance(answer, Principal):
            name, caller, answer = answer.name, answer.caller, answer.role
        if answer is None:
            return None
        if not isinstance(answer, str) or answer not in set(Role):
            logger.error(
                "the function given as auth= returned the role %r; known are: %s; the request was refused",
                answer,
                ", ".join(Role),
            )
            raise Refused(403, "forbidden", "the application gave this caller a role that does not exist")
        return Principal(name, Role(answer), caller)


class Bearer:
    """Identifies callers by the token that they send."""

    def __init__(self, check: TokenCheck, *, open_without: bool) -> None:
        self.check = check
        self._open_without = open_without

    async def identify_uncached(self, request: Request) -> Principal | None:
        """The same from the database, without the cache."""
        return await self(request, uncached=True)

    async def __call__(self, request: Request, *, uncached: bool = False) -> Principal | None:
        """The token's holder; while no token exists, and if `open_without`, a caller on this machine."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            secret = secret.strip()
        else:
            secret = request.cookies.get(cookie_name(request), "") if "cookie" in request.headers else ""
        if secret:
            token = await self.check.find(secret, uncached=uncached)
            return None if token is None else Principal(token.name, token.role, f"token:{token.id}")
        if self._open_without and is_from_this_machine(request) and not await self.check.any_exists():
            return Principal("local", Role.ADMIN)
        return None


COOKIE: Final = "tasklib_session"
"""The cookie with the dashboard's token: not readable by scripts, never sent by another site."""


def cookie_name(request: Request) -> str:
    """The cookie's name; over https one that browsers accept only from this host."""
    return f"__Host-{COOKIE}" if request.url.scheme == "https" else COOKIE
