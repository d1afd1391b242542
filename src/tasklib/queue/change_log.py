"""Changes that programs make are in the audit log, as those of the service are."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import uuid4

from tasklib.storage.operations.access.audit import BEGUN, AuditEntry, recorded
from tasklib.storage.statement import Operation, recall

T = TypeVar("T")
ROLE: Final = "local"
"""Of who uses the database directly, by Python or the command line."""


def local_user() -> str:
    """The user of this machine who runs this program: `ada@host`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def logged(
    work: Operation[T],
    action: str,
    /,
    *,
    by: str | None = None,
    on: str | None = None,
    added: Callable[[T], dict[str, Any] | None] = lambda _: {},
    **detail: Any,
) -> Operation[T]:
    """The work and its entry in the audit log, both or neither.

    `on` is what was changed, if it has a name of its own.  `added` returns what the result adds to the entry; None if
    nothing was changed.  A front end that writes an entry of its own, which knows more, replaces this one.
    """
    memory = yield from recall()
    request_id = memory.setdefault("request_id", str(uuid4()))

    def entry_of(result: Any) -> AuditEntry | None:
        more = {} if result is BEGUN else added(result)
        if more is None:
            return None
        given = {name: value for name, value in {**detail, **more}.items() if value is not None}
        return AuditEntry(by or local_user(), ROLE, action, on, given, None, request_id)

    return (yield from recorded(work, entry_of))


def if_done(done: bool) -> dict[str, Any] | None:
    """For work that says whether it has changed anything."""
    return {} if done else None


def if_committed(_: object) -> None:
    """For work that commits a change, and the entry with it, before it goes on: then there is none left to write."""
    return


def if_any(changed: int) -> dict[str, Any] | None:
    """For work that says how many it has changed."""
    return {"changed": changed} if changed else None
