"""One shape for everything that goes wrong: application/problem+json, with the field at fault where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1


class Problem(BaseModel):
    """What went wrong, for a program and for a person (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:tasklib:problem:invalid-request",
                    "title": "Bad Request",
                    "status": 400,
                    "detail": "limit: Input should be less than or equal to 100",
                    "field": "limit",
                }
            ]
        }
    )

    type: str = Field(description="Names the kind of problem; stable.")
    title: str
    status: int
    detail: str = Field(description="What was wrong, with which value, and what to do.")
    field: str | None = Field(None, description="The field at fault, if there is one.")


class Refused(HTTPException):
    """Ends a request with a problem of a given kind."""

    def __init__(
        self, status: int, kind: str, detail: str, *, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, headers)
        self.kind = kind
        self.field = field


def problem(
    status: int, kind: str, detail: str, *, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The answer for a problem."""
    body: dict[str, Any] = {
        "type": f"urn:tasklib:problem:{kind}",
        "title": phrase(status),
        "status": status,
        "detail": _printable(detail),
    }
    if field is not None:
        body["field"] = _printable(field)
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route can answer, for the interface description."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}} for status in statuses}


def phrase(status: int) -> str:
    """The phrase of a status; its number if it has none."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def _printable(text: str) -> str:
    """The text with nothing in it that JSON or UTF-8 refuses."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
