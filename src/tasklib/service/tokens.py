"""Tokens of the HTTP service: make, list, use and revoke them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tasklib.queue.sync_async import operation, single_try
from tasklib.service.audit import AuditEntry
from tasklib.service.base import ServicePart
from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.access.tokens import NewToken, Role, Token
from tasklib.storage.statement import Operation

__all__ = ["NewToken", "Role", "Token", "Tokens", "short_form"]


def short_form(which: str) -> str:
    """A token as a message may name it: never by its whole secret."""
    return f"{which[: tokens.SHOWN_CHARACTERS]}…" if which.startswith(tokens.PREFIX) else repr(which)


class Tokens(ServicePart):
    """The tokens of one queue."""

    @single_try
    def create(
        self,
        name: str,
        role: Role,
        *,
        expires_at: datetime | timedelta | None = None,
        audit: AuditEntry | None = None,
    ) -> Operation[NewToken]:
        """Create a token, valid until a moment, or for a time by the database's clock."""
        work = tokens.create_token(name, role, expires_at=expires_at)
        return (yield from self.audited(work, audit, lambda made: {"id": str(made.token.id)}))

    acreate = create.as_async

    @operation
    def all(self) -> Operation[Sequence[Token]]:
        """Every token, the newest first, revoked and expired ones included."""
        return (yield from tokens.list_tokens())

    aall = all.as_async

    @operation
    def use(self, secret: str) -> Operation[Token | None]:
        """The valid token with this secret, or None; notes that it was used."""
        return (yield from tokens.use_token(tokens.hashed(secret)))

    ause = use.as_async

    @operation
    def any_exists(self) -> Operation[bool]:
        """Whether a token was ever created, also one that is no longer valid."""
        return (yield from tokens.any_token())

    aany_exists = any_exists.as_async

    @operation
    def revoke_named(self, which: str) -> Operation[Sequence[Token]]:
        """Revoke every token of a name, or the one with this id, these first characters or this whole text.

        Returns the revoked ones.
        """
        return (yield from tokens.revoke_tokens(which))

    @operation
    def revoke(self, token_id: UUID, *, audit: AuditEntry | None = None) -> Operation[Token | None]:
        """Revoke the token with this id; None if there is none, or it was revoked before."""
        work = tokens.revoke_token(token_id)
        return (yield from self.audited(work, audit, lambda revoked: None if revoked is None else {}))

    arevoke = revoke.as_async
