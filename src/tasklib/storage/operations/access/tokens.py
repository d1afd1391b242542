"""Tokens of the HTTP service: only their hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

from tasklib.errors import ConfigurationError
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.rows import moment, required_moment, uuid
from tasklib.storage.statement import BEGIN, Operation, Row, Statement

PREFIX: Final = "tl_"
"""What every token begins with, so that scanners of source code can find one."""
SHOWN_CHARACTERS: Final = 9
"""How much of a token is stored in clear, to distinguish tokens."""


class Role(StrEnum):
    """What the holder of a token may do."""

    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret."""

    id: UUID
    name: str
    role: Role
    begins: str
    """Its first characters."""
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""
    revoked_at: datetime | None
    valid: bool


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made; its secret is shown this once and stored nowhere."""

    token: Token
    secret: str


def hashed(secret: str) -> str:
    """What is stored of a secret.  It has 256 random bits, so that a fast hash cannot be reversed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def create_token(name: str, role: Role, *, expires_at: datetime | timedelta | None = None) -> Operation[NewToken]:
    """Make a token, good until a moment, or for so long by the database's clock.

    One that would never be valid is refused: from the first token on, the service admits nobody without one.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    if expires_at is not None:
        yield BEGIN
        now = yield from read_clock()
        expires_at = now + expires_at if isinstance(expires_at, timedelta) else expires_at
        if expires_at <= now:
            raise ConfigurationError(
                f"a token that expires at {expires_at.isoformat(timespec='seconds')} would never be valid, "
                "because that is over; name a later moment"
            )
    rows = yield Statement(
        "create_token",
        {
            "id": str(uuid4()),
            "name": name,
            "role": str(role),
            "hash": hashed(secret),
            "begins": secret[:SHOWN_CHARACTERS],
            "expires_at": expires_at,
        },
    )
    return NewToken(_token(rows[0]), secret)


def use_token(hash_of_secret: str) -> Operation[Token | None]:
    """The valid token of this hash, or None; notes that it was used."""
    rows = yield Statement("find_token", {"hash": hash_of_secret})
    token = _token(rows[0]) if rows else None
    if token is None or not token.valid:
        return None
    if rows[0]["stale"]:
        yield Statement("touch_token", {"id": str(token.id)})
    return token


def any_token() -> Operation[bool]:
    """Whether a token was ever made, also one that is no longer valid."""
    return bool((yield Statement("any_token"))[0]["found"])


def list_tokens() -> Operation[list[Token]]:
    """Every token, the newest first."""
    return [_token(row) for row in (yield Statement("list_tokens"))]


def revoke_tokens(which: str) -> Operation[list[Token]]:
    """Refuse every token of a name from now on, or the one of an id, of its first characters or of its whole text.

    Returns those revoked.  A name takes precedence, so that no token can hide behind the beginning of another.
    """
    yield BEGIN
    left = [token for token in (yield from list_tokens()) if token.revoked_at is None]
    named = [token for token in left if token.name == which]
    chosen = named or [token for token in left if which == str(token.id) or which.startswith(token.begins)]
    revoked: list[Token] = []
    for token in chosen:
        rows = yield Statement("revoke_token", {"id": str(token.id)})
        revoked.append(_token(rows[0]))
    return revoked


def revoke_token(token_id: UUID) -> Operation[Token | None]:
    """Refuse the token of this id from now on; None if there is none, or it was revoked before."""
    yield BEGIN
    if not any(token.id == token_id and token.revoked_at is None for token in (yield from list_tokens())):
        return None
    return _token((yield Statement("revoke_token", {"id": str(token_id)}))[0])


def _token(row: Row) -> Token:
    return Token(
        id=uuid(row["id"]),
        name=row["name"],
        role=Role(row["role"]),
        begins=row["begins"],
        created_at=required_moment(row["created_at"]),
        expires_at=moment(row["expires_at"]),
        last_used_at=moment(row["last_used_at"]),
        revoked_at=moment(row["revoked_at"]),
        valid=bool(row["valid"]),
    )
