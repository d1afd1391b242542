"""Whose a unique key is: who may not read every task is told no more of another's than that the key is taken."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Self

from fastapi import Request

from tasklib.core.task import SUBMITTER_HEADER, NewTask, Task
from tasklib.errors import UniqueConflict
from tasklib.http.errors import Refused
from tasklib.http.security.auth import GRANTS, Permission, principal_of


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who stores tasks, and whether it may read those of others."""

    identity: str
    reads_all: bool

    @classmethod
    def of(cls, request: Request) -> Self:
        """The caller of this request."""
        principal = principal_of(request)
        return cls(principal.identity, Permission.READ in GRANTS[principal.role])

    def mark(self, new: NewTask) -> NewTask:
        """The row, saying by whom it was sent, if others can come upon it by its key."""
        if new.unique_key is None:
            return new
        return replace(new, headers={**new.headers, SUBMITTER_HEADER: self._digest})

    def require_own(self, new: NewTask, holder: Task | None) -> None:
        """Refuse to tell of the task that holds the key of a new one, unless the caller sent it or may read it."""
        if not self.reads_all and (holder is None or holder.headers.get(SUBMITTER_HEADER) != self._digest):
            raise _taken(new.name, new.unique_key or "")

    def shown(self, conflict: UniqueConflict) -> Exception:
        """What the caller is told of a conflict: which task it is only if it may read every task."""
        return conflict if self.reads_all else _taken(conflict.name, conflict.unique_key)

    @property
    def _digest(self) -> str:
        """Tells callers apart without naming them to whoever reads the task."""
        return hashlib.sha256(self.identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _taken(name: str, key: str) -> Refused:
    return Refused(
        409,
        "unique-conflict",
        f"a live task of {name!r} already holds the unique key {key!r}; nothing was stored; "
        "wait until it has ended, or use another key",
        field="options.uniqueKey",
    )
