"""Secrets are planted in every field of every kind of type, and no face shows one: not even to who knows no code."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, NewType, NotRequired, TypeVar
from urllib.parse import quote, quote_plus

import pytest
import typing_extensions
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    field_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tasklib import InvalidArguments, TaskContext, TaskQueue
from tasklib.cli.main import main
from tasklib.core.codec import MASK
from tests.fixtures.queues import Face, open_queue
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file")
T = TypeVar("T")


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    access_code: SecretStr
    seen: str = "visible"


class Aliased(BaseModel):
    pin: Secret[str] = Field(validation_alias=AliasChoices("Pin.Code", "pc"), serialization_alias="out|put")


class Root(RootModel[Secret[str]]): ...


class Pair(NamedTuple):
    seen: str
    hidden: SecretStr


@dataclass
class Box(Generic[T]):
    content: T
    seen: str = "visible"


class Generically(BaseModel, Generic[T]):
    content: T


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, SecretStr]
    seen: str = "visible"


@pydantic_dataclass(config=ConfigDict(alias_generator=to_camel, populate_by_name=True))
class Camels:
    my_pin: SecretStr


class Typed(typing_extensions.TypedDict):
    p: NotRequired[Annotated[SecretStr, Field(alias="P")]]


class Node(BaseModel):
    code: SecretStr
    below: list[Node] = []


class Masked(BaseModel):
    """Says by itself that it is secret, in no way that its type shows."""

    code: str

    @field_serializer("code", when_used="json")
    def _hide(self, code: str) -> str:
        return MASK


Named = NewType("Named", SecretStr)
Listed = typing_extensions.TypeAliasType("Listed", list[Secret[str]])
Mapped = typing_extensions.TypeAliasType("Mapped", dict[str, T], type_params=(T,))

KINDS: list[tuple[Any, Callable[[str], Any]]] = [
    (SecretStr, str),
    (Secret[str] | None, str),
    (SecretBytes, str),
    (Secret[dict[str, Any]], lambda s: {"a": {"b": s}}),
    (Annotated[Secret[str], Field(description="x")], str),
    (Camel, lambda s: {"accessCode": s}),
    (Camel, lambda s: Camel(accessCode=s)),  # type: ignore[arg-type, call-arg]
    (Aliased, lambda s: {"pc": s}),
    (Aliased, lambda s: {"Pin.Code": s}),
    (Root, str),
    (Named, str),
    (Listed, lambda s: [s]),
    (Mapped[SecretStr], lambda s: {"k": s}),  # type: ignore[misc]
    (Pair, lambda s: ("visible", s)),
    (Pair, lambda s: {"seen": "visible", "hidden": s}),
    (Box[SecretStr], lambda s: {"content": s}),
    (Generically[Secret[str]], lambda s: {"content": s}),
    (Extra, lambda s: {"anything": s}),
    (Camels, lambda s: {"myPin": s}),
    (Typed, lambda s: {"P": s}),
    (Node, lambda s: {"code": "none", "below": [{"code": "none", "below": [{"code": "none"}, {"code": s}]}]}),
    (Masked, lambda s: {"code": s}),
    (tuple[str, SecretStr], lambda s: ("visible", s)),
    (list[dict[str, tuple[Secret[str], ...]]], lambda s: [{"a": (s,)}]),
    (dict[str, int | SecretStr], lambda s: {"a": s}),
    (set[SecretStr], lambda s: {s}),
    (Secret[int], lambda s: int(s.partition("#")[2])),
]
SECRETS = [f"s3cr3t/{number:03} ö?&'\"#{4_711_000_123 + number}" for number in range(len(KINDS) + 10)]


def spellings(secret: str) -> Iterator[str]:
    """The ways to read it from what is shown; also of its beginning."""
    yield from (secret, secret[:10], quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1])
    number = int(secret.partition("#")[2])
    yield from (str(number), f"{number:,}", f"{number:_}", json.dumps(secret)[1:-1])


@pytest.fixture
def queue(database_url: str) -> Iterator[Face]:
    with open_queue(database_url, "awaiting", max_retries=0) as face:
        yield face


@pytest.fixture
def stranger(queue: Face) -> Iterator[Client]:
    """The service beside a queue that knows none of the code."""
    with open_queue(queue.url, "awaiting", queue.plain.clock) as face:  # type: ignore[arg-type]
        client = Client(face, face.plain.asgi(auth=None))
        yield client
        client.close()


def plant(plain: TaskQueue) -> list[Any]:
    """A task of each kind that succeeds and one that fails, and a schedule; all of them talk about their secret."""
    ids: list[Any] = []
    for number, (kind, make) in enumerate(KINDS):
        function = talkative(number)
        function.__annotations__["given"] = kind
        function.__name__ = function.__qualname__ = f"kind{number}"
        job = plain.task(function)
        value = make(SECRETS[number])
        ids += [job.submit(value, fails=fails) for fails in (False, True)]
        plain.add_schedule(f"every{number}", task=job.name, every=1000, kwargs={"given": value, "fails": False})
    secret = SECRETS[len(KINDS)]

    @plain.task
    def by_name(to: str, **codes: SecretStr) -> str:
        raise ValueError(f"{to}: {codes['one'].get_secret_value()}")

    ids.append(by_name.submit("visible", one=SecretStr(secret)))
    plain.add_schedule("codes", task="by_name", every=1000, kwargs={"to": "visible", "one": secret})
    return ids


def talkative(number: int) -> Any:
    secret = SECRETS[number]

    def kind(given: Any, fails: bool, ctx: TaskContext) -> Any:
        digits = int(secret.partition("#")[2])
        said = digits if KINDS[number][0] == Secret[int] else secret
        ctx.log("has %s", said)
        ctx.log.warning("." * 495 + f"{said}")
        ctx.progress(0.5, "." * 495 + f"{said}")
        try:
            raise LookupError(said)
        except LookupError:
            ctx.log.exception("quoted %r", said)
        if fails:
            raise ValueError(f"{said}: at https://ada:{quote(str(said))}@host/?q={quote_plus(str(said))} {said!r}")
        return {"said": said, "in": [f"<{said!r}>"]}

    kind.__annotations__.update(fails=bool, ctx=TaskContext)
    return kind


def test_no_face_shows_a_secret_of_any_type(
    queue: Face,
    stranger: Client,
    http: Client,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = queue.plain
    with caplog.at_level(logging.DEBUG):
        ids = plant(plain)
        assert queue.process_batch() == len(ids)
    faces = {"log": caplog.text + "".join(repr(record.__dict__) for record in caplog.records)}
    for name, client in {"service": http, "service without code": stranger}.items():
        faces[name] = "\n".join(said_by(client, ids))
    for arguments in commands(ids):
        assert main([*arguments, "--database-url", queue.url]) in (0, 1)
    printed = capsys.readouterr()
    faces["cli"] = printed.out + printed.err
    faces["python"] = "\n".join(python_says(plain, ids))
    kept = queue.sql("SELECT error, fingerprint, history, log, progress_message FROM tasks")
    faces["columns that are about the task"] = json.dumps([list(map(str, row.values())) for row in kept])
    for face, text in faces.items():
        assert "visible" in text or face.startswith(("log", "columns")), face
        leaks = [(n, form) for n, secret in enumerate(SECRETS) for form in spellings(secret) if form in text]
        assert leaks == [], face
    first = plain.get(ids[0])
    assert first is not None
    assert first.kwargs["given"] == SECRETS[0], "in Python the arguments are open: code needs them"


def said_by(client: Client, ids: list[Any]) -> Iterator[str]:
    for path, operations in client.app.openapi()["paths"].items():
        if "get" in operations and "{" not in path and path != "/api/events":
            yield client.get(path, params={"limit": 100} if path == "/api/tasks" else {}).text
    for task_id in ids:
        yield client.get(f"/api/tasks/{task_id}").text
        yield client.get(f"/api/tasks/{task_id}/explain").text
    for schedule in client.get("/api/schedules").json()["schedules"]:
        yield client.get(f"/api/schedules/{schedule['name']}").text


def commands(ids: list[Any]) -> Iterator[list[str]]:
    for command in ("list --limit 100", "schedules", "errors", "schedules show every5", "schedules show codes"):
        yield command.split()
        yield [*command.split(), "--json"]
    for task_id in ids[::9]:
        yield ["show", str(task_id)]
        yield ["show", str(task_id), "--json"]
        yield ["explain", str(task_id)]


def python_says(plain: TaskQueue, ids: list[Any]) -> Iterator[str]:
    for task_id in ids:
        task = plain.get(task_id)
        yield f"{task!r} {task} {plain.explain(task_id)}"
        yield repr(plain.explain(task_id))
    yield from map(repr, plain.schedules())
    yield repr(plain.errors())


def test_what_a_refusal_quotes_is_no_secret(queue: Face, http: Client) -> None:
    @queue.plain.task(name="strict")
    def strict(pin: Annotated[Secret[int], Field()], account: Camel, either: Camel | int | None = None) -> None: ...

    code = {"accessCode": ["hunter3"]}
    misfit = {"pin": "hunter2", "account": code, "either": code}
    for body in ({"type": "strict", "payload": misfit}, {"type": "unknown", "payload": {"password": "hunter\0"}}):
        refused = http.post("/api/tasks", body)
        assert refused.status_code == 400
        assert "hunter" not in refused.text
    with pytest.raises(InvalidArguments) as error:
        strict.submit(pin="hunter2", account={"accessCode": 5})  # type: ignore[arg-type]
    assert "hunter" not in f"{error.value!r} {error.value}"


def test_another_type_gets_no_secret_of_the_schedule(queue: Face, http: Client, stranger: Client) -> None:
    @queue.plain.task(name="job")
    def job(code: Secret[str], note: str = "") -> None: ...

    queue.plain.add_schedule("s", task="job", every=60, kwargs={"code": "hunter2", "note": "a"})
    for client in (http, stranger):
        shown = client.get("/api/schedules/s").json()["payload"]
        assert shown == {"code": MASK, "note": "a"}
        taken = client.put("/api/schedules/s", {"type": "other", "every": 60, "payload": shown})
        assert taken.status_code == 400
        assert "hunter2" not in taken.text
        moved = client.put("/api/schedules/s", {"type": "job", "every": 60, "payload": {"code": "x", "note": MASK}})
        assert moved.status_code == 400
        kept = client.put("/api/schedules/s", {"type": "job", "every": 90, "payload": shown})
        assert kept.json()["payload"] == shown
        assert queue.get_schedule("s").plan.kwargs == {"code": "hunter2", "note": "a"}
        assert stranger.get("/api/schedules/s").json()["payload"] == shown
        made = client.post("/api/schedules/s/run").json()["id"]
        assert stranger.get(f"/api/tasks/{made}").json()["payload"] == shown


def test_a_remedy_names_no_secret(queue: Face, http: Client) -> None:
    options = {"concurrency_key": "of hunter2"}
    queue.plain.enqueue("job", {"password": "hunter2"}, **options)
    waiting = queue.plain.enqueue("job", {"password": "hunter2"}, **options)
    queue.plain.set_key_limit(1, "of hunter2")
    queue.worker("job").take()
    reasons = http.get(f"/api/tasks/{waiting}/explain").json()["reasons"]
    assert any("key-limit" in (reason["remedy"] or "") for reason in reasons)
    assert "hunter2" not in json.dumps(reasons)
    assert "hunter2" not in repr(queue.plain.explain(waiting))


def test_what_a_worker_over_http_says_is_kept_and_grouped_without_secrets(queue: Face, http: Client) -> None:
    made = http.create("job", {"password": "hunter2"})
    instance = http.post("/api/workers", {"workerId": "w", "types": ["job"]}).json()["instance"]
    (task,) = http.post(f"/api/workers/{instance}/claim", {"limit": 1}).json()["tasks"]
    assert task["payload"] == {"password": "hunter2"}, "a worker needs it"
    error = "hunter2: refused\nhunter2 at https://ada:hunter3@host/"
    ended = http.post(f"/api/tasks/{made['id']}/fail", {"version": task["version"], "error": error, "retry": False})
    assert ended.status_code == 200
    said = http.get("/api/errors").text + http.get(f"/api/tasks/{made['id']}").text
    assert "hunt" not in said + str(queue.sql("SELECT error, fingerprint, history FROM tasks"))
