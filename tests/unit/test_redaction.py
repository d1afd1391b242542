"""Secrets are hidden by key and by annotation, wherever they stand, and put back where an edit left the mask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Json, Secret, SecretStr
from typing_extensions import TypeAliasType

from tasklib import InvalidArguments, Task, TaskQueue
from tasklib.core.codec import MASK
from tasklib.core.redaction import SECRETS_HEADER, Redactor
from tasklib.core.task import Attempt, LogLine, TaskState
from tasklib.definition.secrets import secret_paths

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def task(kwargs: Any, **fields: Any) -> Task:
    given = {"state": TaskState.FAILED, "scheduled_at": NOW, "created_at": NOW, "updated_at": NOW}
    return Task(id=uuid4(), name="job", kwargs=kwargs, **given | fields)


@pytest.mark.parametrize("key", ["password", "PASSWORD", "db_password", "apiKey", "API-Key", "accessToken", "secret_1"])
def test_a_key_that_sounds_secret_is(key: str) -> None:
    assert Redactor().value({"a": [{key: "x"}]}) == {"a": [{key: MASK}]}


@pytest.mark.parametrize("key", ["pass", "token_count", "name", "to"])
def test_other_keys_are_shown(key: str) -> None:
    assert Redactor().value({key: "x"}) == {key: "x"}


def test_the_patterns_can_be_chosen() -> None:
    assert Redactor("iban, card*").value({"IBAN": 1, "cardNumber": 2, "password": 3}) == {
        "IBAN": MASK,
        "cardNumber": MASK,
        "password": 3,
    }


def test_a_secret_is_taken_out_of_everything_else_about_its_task() -> None:
    secret = 'hunter2 "quoted"\nö'
    shown = Redactor().task(
        task(
            {"password": secret},
            error=f"ValueError: {secret!r} is wrong",
            result={"value": f"did {secret}"},
            tags={"note": secret},
            headers={"trace": secret},
            progress_message=secret,
            history=(Attempt(1, NOW, NOW, "w", "failed", f"no: {secret}"),),
            log=(LogLine(1, 0.1, "INFO", f"with {secret}"),),
        )
    )
    assert "hunter2" not in repr(shown)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("password=hunter3 to=ada", f"password={MASK} to=ada"),
        ("password = b'hunter3', 1", f"password = {MASK}, 1"),
        ("password == 'hunter3' y", f"password == '{MASK}' y"),
        ("{'apiKey': 'it\\'s', 'x': 1}", f"{{'apiKey': '{MASK}', 'x': 1}}"),
        ('{"token": ["a", "]"], "y": 2}', f'{{"token": {MASK}, "y": 2}}'),
        (r"{\"password\": \"hunter3\", \"z\": 1}", rf"{{\"password\": \"{MASK}\", \"z\": 1}}"),
        ("PRIVATEKey='a' monkey='b'", f"PRIVATEKey='{MASK}' monkey='b'"),
        ("token='never closed", f"token='{MASK}"),
        ("token: expired, x: 1", "token: expired, x: 1"),
        ("at postgresql://ada:p?w/x@host/db", f"at postgresql://ada:{MASK}@host/db"),
        ("at http://localhost:8000/@ada", "at http://localhost:8000/@ada"),
        ("%68unter2 hunter2 1,234,567 1234567", f"%68unter2 {MASK} {MASK} {MASK}"),
        ("p%C3%B6%3Fx p%c3%b6%3fx p\\u00f6?x", f"{MASK} {MASK} {MASK}"),
        ("abcdef", MASK),
    ],
)
def test_a_text_is_shown_without_secrets(text: str, shown: str) -> None:
    hide = Redactor().texts({"secret": ["hunter2", 1_234_567, "pö?x", "abcd", "cdef"]}, {})
    assert hide.text(text) == shown


def test_marked_arguments_are_hidden_and_their_mark_too() -> None:
    shown = Redactor().task(task({"a": {"b": [1, {"c": "x"}]}, "d": 1}, headers={SECRETS_HEADER: ["a.b.*.c"]}))
    assert (shown.kwargs, shown.headers) == ({"a": {"b": [1, {"c": MASK}]}, "d": 1}, {})


def test_an_edit_keeps_what_it_did_not_see() -> None:
    stored = {"password": "x", "to": "ada", "keys": [{"token": "y"}], "n": 1}
    edited = {"password": MASK, "to": "bob", "keys": [{"token": MASK}, {"token": "new"}]}
    assert Redactor().restore(edited, stored) == {
        "password": "x",
        "to": "bob",
        "keys": [{"token": "y"}, {"token": "new"}],
    }


class Account(BaseModel):
    name: str
    pin: SecretStr


@dataclass
class Box:
    codes: list[Secret[str]]


@pytest.fixture
def queue() -> TaskQueue:
    return TaskQueue("sqlite:///:memory:")


def test_annotated_secrets_are_marked_on_the_row_and_arrive_open(queue: TaskQueue) -> None:
    @queue.task
    def job(key: Secret[str], account: Account, box: Box, other: SecretStr | None = None, plain: str = "") -> None: ...

    task_id = job.submit(Secret[str]("k-1"), Account(name="ada", pin=SecretStr("p-1")), Box([Secret[str]("c-1")]))
    stored = queue.get(task_id)
    assert stored is not None
    assert stored.kwargs == {"key": "k-1", "account": {"name": "ada", "pin": "p-1"}, "box": {"codes": ["c-1"]}}
    shown = Redactor().task(stored).kwargs
    assert shown == {"key": MASK, "account": {"name": "ada", "pin": MASK}, "box": {"codes": [MASK]}}


def test_a_refused_secret_is_not_quoted(queue: TaskQueue) -> None:
    @queue.task
    def job(password: int, pin: SecretStr, n: int) -> None: ...

    with pytest.raises(InvalidArguments) as refused:
        job.options().submit(password="hunter2", pin=["hunter3"], n="hunter4")  # type: ignore[arg-type]
    assert "hunter4" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "hunter3" not in str(refused.value)


def test_what_pydantic_cannot_write_is_refused_as_arguments_are(queue: TaskQueue) -> None:
    @queue.task
    def job(account: Json[Account]) -> None: ...

    with pytest.raises(InvalidArguments, match="cannot be written as JSON"):
        job.submit('{"name": "ada", "pin": "s3cret"}')  # type: ignore[arg-type]


class Node(BaseModel):
    pin: SecretStr
    below: list[Node] = []


class Tree(BaseModel):
    below: list[Tree] = []
    name: str = ""


class Garden(BaseModel):
    pin: SecretStr
    tree: Tree


Codes = TypeAliasType("Codes", "SecretStr | dict[str, Codes]")
NESTED = {"pin": "s3cret", "below": [{"pin": "s3cret", "below": [{"pin": "s3cret"}]}]}


@pytest.mark.parametrize(
    "kind, given",
    [
        (Node, NESTED),
        (Codes, {"a": {"b": "s3cret"}}),
        (Json[Account], '{"name": "ada", "pin": "s3cret"}'),
        (Account, "ada:s3cret"),  # as a validator of the model may take it
        (dict[SecretStr, int], {"s3cret": 1}),
    ],
)
def test_what_was_submitted_by_name_is_hidden_by_its_type_alone(kind: Any, given: Any) -> None:
    paths = [f"given.{each}".strip(".") for each in secret_paths(kind)]
    assert "s3cret" not in str(Redactor().payload({"given": given}, paths))


def test_only_the_part_of_a_type_that_has_secrets_is_hidden() -> None:
    given = {"pin": "s3cret", "tree": {"below": [{"below": [{"name": "oak"}]}], "name": "elm"}}
    assert Redactor().payload(given, secret_paths(Garden)) == given | {"pin": MASK}
