"""Error handlers: every error of the app is answered as a problem (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from tasklib import errors
from tasklib.core.codec import MAX_DEPTH
from tasklib.core.numbers import is_number
from tasklib.http.errors import RETRY_AFTER_SECONDS, Refused, phrase, problem
from tasklib.http.parts import parts_of
from tasklib.http.schemas.fields import PATTERNS_IN_WORDS
from tasklib.service.creation import KeyTaken
from tasklib.service.http_workers.workers import NotOwner

logger = logging.getLogger("tasklib.http")

UNREADABLE_BODY: Final = "There was an error parsing the body"
"""The framework's message for JSON that is too deep for Python, or has a number too long for it."""
METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


def install(app: FastAPI) -> None:
    """Answer every error of the app as a problem."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(errors.TaskLibError, _on_tasklib)
    app.add_exception_handler(NotOwner, _on_foreign_worker)
    app.add_exception_handler(Exception, _on_unexpected)


async def answer(request: Request, error: Exception) -> JSONResponse:
    """The answer to an error that was raised outside of the routes."""
    return await (_on_http if isinstance(error, HTTPException) else _on_tasklib)(request, error)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first: Mapping[str, Any] = error.errors()[0]
    location, kind = first["loc"], first["type"]
    if kind == "json_invalid":
        detail = f"the body is not JSON: {first['ctx']['error']} at character {location[-1]}"
        return problem(400, "invalid-request", detail)
    if location == ("body",) and kind != "value_error":
        return problem(400, "invalid-request", "send a JSON object, with the header Content-Type: application/json")
    field = _field(location)
    message = _in_words(first) + _got(first)
    if kind == "extra_forbidden":
        message = f"is not known here; see GET {_description(request)}"
    return problem(400, "invalid-request", f"{field}: {message}" if field else message, field=field or None)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    kind, path = _kind(error), request.url.path
    await parts_of(request).refusals.record(request, error.status_code, kind)
    if isinstance(error, Refused):
        return problem(error.status_code, error.kind, error.detail, field=error.field, headers=error.headers)
    match error.status_code:
        case 404:
            return problem(404, kind, f"there is nothing at {path}; see GET {_description(request)}")
        case 405:
            detail = f"{path} does not take {request.method}; see GET {_description(request)}"
            return problem(405, kind, detail, headers={"Allow": ", ".join(_methods(request))})
        case 400 if error.detail == UNREADABLE_BODY and isinstance(error.__cause__, UnicodeDecodeError):
            return problem(400, "invalid-request", "the body is not UTF-8 text; send it in UTF-8 and uncompressed")
        case 400 if error.detail == UNREADABLE_BODY:
            detail = (
                f"the body cannot be read: nest it at most {MAX_DEPTH} deep, and write integers of fewer digits as text"
            )
            return problem(400, "invalid-request", detail)
        case status:
            # The application's own check may give any detail, not only text.
            return problem(status, kind, str(error.detail), headers=error.headers)


def _kind(error: HTTPException) -> str:
    return error.kind if isinstance(error, Refused) else phrase(error.status_code).lower().replace(" ", "-")


async def _on_tasklib(request: Request, error: Exception) -> JSONResponse:
    for kinds, status, name in _TABLE:
        if isinstance(error, kinds):
            headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 503 else None
            named = next((field for kind, field in _FIELDS.items() if isinstance(error, kind)), None)
            field = error.field if isinstance(error, errors.InvalidPayload) else named
            return problem(status, name, _detail(request, error), field=field, headers=headers)
    return await _on_unexpected(request, error)


async def _on_foreign_worker(request: Request, _: Exception) -> JSONResponse:
    detail = (
        "this worker was registered with another token, and only that token may act for it; "
        "register a worker with this token and claim with it"
    )
    return await _on_http(request, Refused(403, "not-your-worker", detail))


async def _on_unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %r failed", request.method, request.url.path, exc_info=error)
    return problem(500, "internal", "something unexpected went wrong here; the service's log says what")


_TABLE: Final[Sequence[tuple[type[Exception] | tuple[type[Exception], ...], int, str]]] = (
    (errors.TaskNotFound, 404, "task-not-found"),
    (errors.InvalidTransition, 400, "invalid-transition"),
    (errors.UniqueConflict, 409, "unique-conflict"),
    (errors.ClaimLost, 409, "claim-lost"),
    (errors.NonDeterminism, 409, "step-mismatch"),
    (errors.InvalidArguments, 400, "invalid-arguments"),
    ((errors.ConfigurationError, errors.TaskDefinitionError), 400, "invalid-request"),
    ((errors.DatabaseUnavailable, errors.DatabaseBusy), 503, "database-unavailable"),
    (errors.DatabaseFull, 503, "database-full"),
    ((errors.SchemaError, errors.PermissionDenied), 503, "database-unusable"),
)


_FOR_THE_LOG: Final[Mapping[type[Exception], str]] = {
    errors.DatabaseUnavailable: "the database does not answer; the service's log says why",
    errors.DatabaseBusy: "the database is busy; try again in a moment",
    errors.DatabaseFull: "the database has no space left; the service's log says more",
    errors.PermissionDenied: "the database does not allow this; the service's log says what is missing",
}
"""The text for callers of errors whose message names the database's address, user or file."""


_FIELDS: Final[Mapping[type[Exception], str]] = {errors.InvalidArguments: "payload", KeyTaken: "options.uniqueKey"}
"""The field at fault, where the error names it."""


def _methods(request: Request) -> list[str]:
    """Every method that the path accepts; the framework gives only those of the first matching route."""

    def takes(method: str) -> bool:
        asked = {**request.scope, "method": method}
        return any(route.matches(asked)[0] is Match.FULL for route in request.app.routes)

    return [method for method in METHODS if takes(method)]


def _description(request: Request) -> str:
    """Where every route and field is described."""
    return f"{request.scope.get('root_path', '')}/openapi.json"


def _in_words(error: Mapping[str, Any]) -> str:
    said = str(error["msg"]).removeprefix("Value error, ")
    is_pattern = error["type"] == "string_pattern_mismatch"
    return PATTERNS_IN_WORDS.get(error["ctx"]["pattern"], said) if is_pattern else said


def _got(error: Mapping[str, Any]) -> str:
    """The value at fault, where it is a number or part of the URL: neither is secret."""
    value = error["input"]
    is_asked = error["loc"][0] == "query" and isinstance(value, str) and error["type"] != "value_error"
    return f", got {str(value)[:100]}" if is_number(value) or is_asked else ""


def _detail(request: Request, error: Exception) -> str:
    """The message of an error, with the statuses of HTTP: a running task is `processing` here."""
    said = text_for_caller(request, error)
    return said.replace("running", "processing") if isinstance(error, errors.InvalidTransition) else said


def text_for_caller(request: Request, error: Exception) -> str:
    """The message of an error.

    Errors of the database go to the log: callers, who may be anybody, must not learn its address and user.
    """
    for kind, text in _FOR_THE_LOG.items():
        if isinstance(error, kind):
            parts_of(request).trouble_log.warn(error)
            return text
    return str(error)


def _field(location: Sequence[Any]) -> str:
    """Where in the request: `options.maxAttempts`, `tasks[3].type`, `limit`."""
    text = ""
    for part in location[1:]:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
