"""Liveness and readiness: the only routes that need no token; they reveal nothing else."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request

from tasklib.errors import SchemaError, StorageError
from tasklib.http.errors import RETRY_AFTER_SECONDS, Refused
from tasklib.http.parts import Service, parts_of
from tasklib.http.schemas.fields import Answer
from tasklib.http.security.auth import Permission, needs

router = APIRouter(tags=["health"])


class Health(Answer):
    """All is well."""

    status: Literal["ok"] = "ok"


@router.head("/healthz", include_in_schema=False, **needs(Permission.PUBLIC))  # as many monitors ask
@router.get("/healthz", **needs(Permission.PUBLIC))
async def is_alive() -> Health:
    """The service is running."""
    return Health()


@router.head("/readyz", include_in_schema=False, **needs(Permission.PUBLIC, 503))
@router.get("/readyz", **needs(Permission.PUBLIC, 503))
async def is_ready(request: Request, service: Service) -> Health:
    """The service is running and its database responds."""
    try:
        await service.queue.apauses()
        if parts_of(request).takes_tokens:
            await service.tokens.aany_exists()  # a database role that may not read them lets nobody in
    except SchemaError as error:
        detail = "the tables in the database do not fit this version; `tasklib doctor` says why, and what to do"
        raise Refused(503, "not-ready", detail, headers={"Retry-After": str(RETRY_AFTER_SECONDS)}) from error
    except StorageError as error:
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        raise Refused(
            503, "not-ready", "the database does not respond or refuses this role", headers=headers
        ) from error
    return Health()
