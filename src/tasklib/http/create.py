"""Creating what was sent: one task, many, or a schedule; once only under an idempotency key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from fastapi import Request

from tasklib.core.redaction import MaskLeft
from tasklib.core.schedule import Schedule
from tasklib.http.admission.audit import audit_of
from tasklib.http.admission.authorization import allow_creation
from tasklib.http.errors import Refused
from tasklib.http.parts import parts_of
from tasklib.http.schemas.inputs import CreateTask
from tasklib.http.security.auth import Permission, principal_of
from tasklib.service.audit import AuditEntry
from tasklib.service.creation import Sender, Stored, Submission
from tasklib.service.service import QueueService


async def create_task(request: Request, body: CreateTask) -> Stored:
    """Store one task, if the caller may."""
    allow_creation(request, [body])
    return await parts_of(request).creation.create(_submission(body), _sender(request), audit_of(request))


async def create_tasks(request: Request, bodies: Sequence[CreateTask], key: str | None) -> Stored:
    """Store tasks, all or none, if the caller may; with a key only once, however often they are sent."""
    allow_creation(request, bodies)
    repeated = next((n for n, each in enumerate(bodies) if each.options.repeat is not None), None)
    if repeated is not None:
        field = f"tasks[{repeated}].options.repeat"
        raise Refused(400, "invalid-request", "no repeated tasks in a batch: use POST /api/schedules", field=field)
    creation, submissions = parts_of(request).creation, [_submission(each) for each in bodies]
    if key is None:
        return await creation.acreate_many(submissions, _sender(request), audit=audit_of(request))
    fingerprint = _digest([body.model_dump(mode="json") for body in bodies])
    stored = await creation.acreate_once(
        submissions, _sender(request), key=key, fingerprint=fingerprint, audit=audit_of(request)
    )
    if stored is None:
        raise Refused(
            409, "idempotency-conflict", f"the key {key!r} was used for another request; use a new one for each request"
        )
    return stored


async def create_schedule(request: Request, body: CreateTask) -> Schedule:
    """Create a schedule, if the caller may; the same one sent twice is one."""
    allow_creation(request, [body])
    repeat, options = body.options.repeat, body.options
    assert repeat is not None
    unfit = {"uniqueKey": options.unique_key, "expiresAt": options.expires_at}
    for name, given in unfit.items():
        if given is not None:
            detail = f"options.{name}: is not possible for a repeated task; leave it out"
            raise Refused(400, "invalid-request", detail, field=f"options.{name}")
    keywords = {
        "task": body.type,
        "kwargs": body.payload,
        "starts_at": options.run_after,
        "options": options.scheduled(),
        **repeat.timing(),
    }
    name = repeat.name or f"{body.type[:200]}:{_digest(body.model_dump(mode='json'))[:12]}"
    return await put_schedule(parts_of(request).service, name, keywords, audit_of(request, schedule=name))


async def put_schedule(service: QueueService, name: str, keywords: dict[str, Any], audit: AuditEntry) -> Schedule:
    """Create or change a schedule; 400 where a mask was sent and no secret is stored there."""
    try:
        return await service.schedules.aput(name, keywords, audit=audit)
    except MaskLeft as error:
        raise Refused(400, "masked-secret", str(error), field="payload") from error


def _submission(body: CreateTask) -> Submission:
    return Submission(body.type, body.payload, body.options.submission())


def _sender(request: Request) -> Sender:
    principal = principal_of(request)
    return Sender(principal.identity, principal.may(Permission.READ))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
