"""Field types that requests share: bounded, and nothing in them that one of the databases refuses."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from tasklib.core.codec import plain
from tasklib.core.numbers import is_number
from tasklib.definition import KEY_RULE, is_key

INT32 = 2**31 - 1
MAX_TAGS_BYTES = 64 * 1024
NAME_PATTERN = r"^[^\x00-\x1f\x7f]*$"
TAG_PATTERN = "^[^=]+="
CURSOR_PATTERN = "^[0-9a-f]{1,15}(-[0-9a-f]{1,8})?$"
TOKEN_PATTERN = r"^[\x21-\x7e]+$"
PATTERNS_IN_WORDS = {
    NAME_PATTERN: "must not contain control characters, such as a line break",
    TAG_PATTERN: "must be name=value",
    CURSOR_PATTERN: "is no cursor; send `nextCursor` of the previous page",
    TOKEN_PATTERN: "must be visible ASCII characters without spaces",
}
"""What the pattern of a field asks for."""
STATES = {"processing": "running"}
"""The states that have another name in HTTP."""


class Answer(BaseModel):
    """A response: camelCase outside, snake_case inside; made from values with the same attributes."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        from_attributes=True,
        populate_by_name=True,
        frozen=True,
    )

    @classmethod
    def of(cls, value: object) -> Self:
        """The value as HTTP shows it; a field with a `validation_alias` is the attribute of that name."""
        return cls.model_validate(value)


class Input(BaseModel):
    """A request: an unknown field is an error, because it is usually a misspelling."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=False, frozen=True, extra="forbid")


def status_of(state: str) -> Any:
    """The HTTP status of a state."""
    return "processing" if state == "running" else str(state)


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain the character U+0000")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must not contain half of a surrogate pair")
    return text


def _iso(value: Any) -> Any:
    """Only ISO-8601 text with a zone; a `+` that a query turned into a space is put back."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d", value):
        raise ValueError("must be an ISO-8601 time with a zone, such as 2030-01-15T10:00:00Z")
    return re.sub(r" (\d\d:?\d\d)$", r"+\1", value)


def _moment(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("needs a time zone: end it with Z or an offset such as +02:00")
    if not 1970 <= value.year <= 9998:
        raise ValueError("must be between the years 1970 and 9998")
    return value.astimezone(UTC)


def check_number(value: Any) -> Any:
    """The value itself if it is a number; JSON's true is not 1."""
    if not is_number(value):
        raise ValueError("must be a number")
    return value


def _tags(value: dict[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = plain(value, what="tags", limit=MAX_TAGS_BYTES)
    return checked


def _key(text: str) -> str:
    if not is_key(text):
        raise ValueError(f"must be {KEY_RULE}")
    return text


TypeName = Annotated[str, Field(validation_alias="name")]
"""The type of a task, which is called its name everywhere else."""
Status = Annotated[
    Literal["pending", "processing", "completed", "failed", "cancelled", "buried"],
    BeforeValidator(status_of),
    Field(validation_alias="state"),
]
Text = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_storable)]
Key = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_key)]
"""A unique or concurrency key."""
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=NAME_PATTERN), AfterValidator(_storable)]
Moment = Annotated[
    datetime,
    BeforeValidator(_iso),
    AfterValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2030-01-15T10:00:00Z"]}),
]
Whole = Annotated[StrictInt, Field(ge=-INT32, le=INT32)]
Seconds = Annotated[float, BeforeValidator(check_number), Field(gt=0, lt=1e9)]
Tags = Annotated[dict[str, Any], AfterValidator(_tags)]
