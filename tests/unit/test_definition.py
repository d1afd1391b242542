"""Tasks from functions and handlers: what a submission stores, and what the function is called with."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Unpack
from unittest.mock import AsyncMock, Mock
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    Secret,
    SecretStr,
    computed_field,
)
from typing_extensions import TypedDict

from tasklib import TaskQueue, injected
from tasklib.core.calls.context import AsyncTaskContext, TaskContext
from tasklib.core.calls.resources import Resource, WorkerState
from tasklib.core.task import Task, TaskState
from tasklib.definition import Definition, TaskOptions
from tasklib.definition.validation import MAX_PROBLEMS, Validation
from tasklib.errors import ConfigurationError, ContextError, InvalidArguments, InvalidPayload, TaskDefinitionError

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
A_TASK = Task(UUID(int=7), "job", TaskState.RUNNING, NOW, NOW, NOW, kwargs={"url": "u"}, attempts=1)


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


class Size(TypedDict):
    width: int
    unit: Literal["px", "em"]


@dataclass
class Range:
    start: date
    days: timedelta


class Address(BaseModel):
    street: str
    moved: datetime


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    when: datetime
    color: Color


class Renamed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    from_: str = Field(alias="from")

    @computed_field
    def shout(self) -> str:
        return self.from_.upper()


class Account(BaseModel):
    login: str
    password: SecretStr


class Crawl(BaseModel):
    url: str


class Engine:
    """Something Pydantic knows nothing about."""


def send_email(to: str, subject: str, body: str = "", copies: int = 0) -> bool:
    return True


def problems_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        call()
    return caught.value.problems


def context(**resources: Any) -> TaskContext:
    return TaskContext(A_TASK, state=WorkerState(**resources))


email = Definition.for_function(send_email)


# Names


def test_a_task_is_named_after_its_function():
    assert email.name == "send_email"


def test_a_name_can_be_given():
    assert Definition.for_function(send_email, name="mail.send").name == "mail.send"


@pytest.mark.parametrize("name", ["", " padded", "a\0b", "x" * 256, 5])
def test_a_name_that_cannot_be_used_is_refused(name: Any):
    with pytest.raises(ConfigurationError, match="name must"):
        Definition.for_function(send_email, name=name)


@pytest.mark.parametrize("function", [lambda: None, functools.partial(send_email, "a"), Engine()])
def test_what_has_no_name_of_its_own_must_be_given_one(function: Any):
    with pytest.raises(TaskDefinitionError, match=r"give the task one: @task\(name="):
        Definition.for_function(function)


# What a submission stores


def test_positional_arguments_are_stored_by_name():
    assert email.bind(("a@b.c",), {"subject": "Hi"}) == {"to": "a@b.c", "subject": "Hi"}


def test_only_what_was_given_is_stored():
    assert "body" not in email.bind(("a@b.c", "Hi"), {})


def test_nothing_is_stored_where_nothing_was_given():
    def job(n: int = 0) -> None: ...

    assert Definition.for_function(job).bind((), {}) == {}


def test_values_are_converted_as_pydantic_does():
    assert email.bind(("a", "b"), {"copies": "5"})["copies"] == 5


def test_each_misfit_is_a_problem_of_its_own():
    assert problems_of(lambda: email.bind((5,), {"subjet": "Hi"})) == [
        "'to': Input should be a valid string (got 5)",
        "'subject' is missing",
        "'subjet' is not a parameter (parameters: to, subject, body, copies)",
    ]


def test_a_misfit_deep_inside_is_named_by_its_place():
    def job(addresses: list[Address]) -> None: ...

    bad = [{"street": "Elm", "moved": NOW}, {"street": 5, "moved": NOW}]

    assert problems_of(lambda: Definition.for_function(job).bind((bad,), {})) == [
        "'addresses[1].street': Input should be a valid string (got 5)"
    ]


def test_a_flood_of_problems_is_cut():
    def job(numbers: list[int]) -> None: ...

    problems = problems_of(lambda: Definition.for_function(job).bind((["x"] * 100,), {}))

    assert (len(problems), problems[-1]) == (MAX_PROBLEMS + 1, "and 80 more")


def test_too_many_positional_arguments_are_counted():
    assert problems_of(lambda: email.bind((1, 2, 3, 4, 5), {})) == [
        "5 positional arguments were given, but it takes 4 (to, subject, body, copies)"
    ]


def test_a_keyword_only_parameter_takes_no_position():
    def job(a: int, *, b: int = 0) -> None: ...

    assert "takes 1 (a)" in problems_of(lambda: Definition.for_function(job).bind((1, 2), {}))[0]


def test_an_argument_given_twice_is_refused():
    assert problems_of(lambda: email.bind(("a",), {"to": "b", "subject": "c"})) == [
        "'to' was given by position and by name"
    ]


def test_an_unannotated_parameter_takes_anything():
    def job(x): ...

    assert Definition.for_function(job).bind(({"when": NOW},), {}) == {"x": {"when": "2026-01-02T03:04:05Z"}}


def test_other_names_are_taken_where_the_function_takes_them():
    def job(a: int, **rest) -> None: ...

    assert Definition.for_function(job).bind((1,), {"b": (2,)}) == {"a": 1, "b": [2]}


def test_other_names_have_the_type_of_the_annotation():
    def job(**numbers: int) -> None: ...

    assert "'b'" in problems_of(lambda: Definition.for_function(job).bind((), {"a": "1", "b": "x"}))[0]


@pytest.mark.parametrize("name", ["self", "schema", "copy", "model_config", "_private", "json", "class_", "task"])
def test_a_parameter_may_have_any_name(name: str):
    namespace: dict[str, Any] = {}
    exec(f"def job({name}: int): ...", namespace)

    assert Definition.for_function(namespace["job"]).bind((), {name: 5}) == {name: 5}


def test_an_annotated_constraint_holds():
    def job(n: Annotated[int, Field(gt=0)]) -> None: ...

    assert "greater than 0" in problems_of(lambda: Definition.for_function(job).bind((0,), {}))[0]


def test_an_alias_of_a_parameter_may_be_used_beside_its_name():
    def job(n: Annotated[int, Field(alias="N")]) -> None: ...

    definition = Definition.for_function(job)

    assert definition.bind((5,), {}) == definition.bind((), {"N": 5}) == {"n": 5}


def test_what_both_databases_cannot_keep_is_refused():
    with pytest.raises(InvalidPayload, match=r"'body': PostgreSQL cannot store U\+0000"):
        email.bind(("a", "b", "c\0"), {})


def test_a_nan_in_a_model_is_refused_and_not_stored_as_null():
    class Measure(BaseModel):
        value: float

    def job(measure: Measure) -> None: ...

    with pytest.raises(InvalidPayload, match=r"'measure\.value': NaN"):
        Definition.for_function(job).bind((Measure(value=float("nan")),), {})


def test_arguments_over_the_limit_are_refused():
    with pytest.raises(InvalidPayload, match="bytes of JSON"):
        email.bind(("a", "b", "c" * 1000), {}, limit=1000)


def test_a_payload_is_the_named_arguments():
    assert email.bind_payload({"to": "a", "subject": "b"}) == {"to": "a", "subject": "b"}


@pytest.mark.parametrize("payload", [None, [1], "text", 5])
def test_a_payload_for_a_function_is_an_object(payload: Any):
    assert (
        "an object of named arguments (to, subject, body, copies)"
        in problems_of(lambda: email.bind_payload(payload))[0]
    )


# What arrives


@pytest.mark.parametrize(
    "annotation, value",
    [
        (datetime, NOW),
        (date, date(2026, 1, 2)),
        (time, time(3, 4)),
        (timedelta, timedelta(days=1.5)),
        (UUID, UUID(int=5)),
        (Decimal, Decimal("1.10")),
        (Path, Path("/tmp/x")),
        (bytes, b"abc"),
        (complex, 1 + 2j),
        (Color, Color.RED),
        (Level, Level.LOW),
        (Point, Point(1, 2)),
        (Size, {"width": 5, "unit": "px"}),
        (Range, Range(date(2026, 1, 2), timedelta(3))),
        (Address, Address(street="Elm", moved=NOW)),
        (Strict, Strict(when=NOW, color=Color.RED)),
        (Renamed, Renamed.model_validate({"from": "me"})),
        (Account, Account(login="me", password=SecretStr("hush"))),
        (Secret[str], Secret[str]("hush")),
        (Secret[int], Secret[int](5)),
        (list[Address], [Address(street="Elm", moved=NOW)]),
        (dict[str, Address], {"home": Address(street="Elm", moved=NOW)}),
        (dict[int, Color], {1: Color.RED}),
        (dict[UUID, date], {UUID(int=1): date(2026, 1, 2)}),
        (set[int], {1, 2}),
        (frozenset[UUID], frozenset({UUID(int=1)})),
        (tuple[int, date], (1, date(2026, 1, 2))),
        (tuple[int, ...], (1, 2, 3)),
        (deque[int], deque([1, 2])),
        (UUID | None, UUID(int=5)),
        (UUID | None, None),
        (int | str, "5"),
        (int | str, 5),
        (Address | Range, Range(date(2026, 1, 2), timedelta(3))),
        (Json[list[int]], [1, 2]),
        (float, 1e300),
        (int, 2**200),
        (Any, {"a": [1, None]}),
        (bool, True),
        (Literal["a", 1], 1),
        (Sequence[int], [1, 2]),
    ],
)
def test_an_argument_arrives_as_its_annotated_type(annotation: Any, value: Any):
    def job(x) -> None: ...

    job.__annotations__["x"] = annotation
    definition = Definition.for_function(job)
    given_value = "[1, 2]" if annotation == Json[list[int]] else value
    arrived = definition.arguments(definition.bind((given_value,), {}))["x"]

    assert (arrived, type(arrived)) == (value, type(value))


def test_a_secret_arrives_open():
    def login(account: Account, token: Secret[str]) -> None: ...

    definition = Definition.for_function(login)
    stored = definition.bind((Account(login="me", password=SecretStr("one")), "two"), {})
    arrived = definition.arguments(stored)

    assert (arrived["account"].password.get_secret_value(), arrived["token"].get_secret_value()) == ("one", "two")


def test_a_value_made_by_a_models_default_arrives_as_it_was_submitted():
    made = iter(range(100))

    class Numbered(BaseModel):
        number: int = Field(default_factory=lambda: next(made))

    def job(x: Numbered) -> None: ...

    definition = Definition.for_function(job)
    submitted = Numbered()

    assert definition.arguments(definition.bind((submitted,), {}))["x"] == submitted


def test_defaults_are_left_to_the_function():
    assert email.arguments({"to": "a", "subject": "b"}) == {"to": "a", "subject": "b"}


def test_no_arguments_arrive_as_none():
    def job(n: int = 0) -> None: ...

    assert Definition.for_function(job).arguments({}) == {}


def test_stored_arguments_that_no_longer_fit_say_so():
    with pytest.raises(InvalidArguments, match=r"stored arguments do not fit .*'subject' is missing"):
        email.arguments({"to": "a"})


def test_missing_arguments_are_noticed_in_an_empty_row_too():
    assert problems_of(lambda: email.arguments({})) == ["'to' is missing", "'subject' is missing"]


@pytest.mark.parametrize("stored", [None, [1], "text", 5, True])
def test_a_row_without_named_arguments_fails_alone(stored: Any):
    assert "an object of named arguments" in problems_of(lambda: email.arguments(stored))[0]


def test_a_row_python_cannot_write_as_text_fails_alone():
    assert problems_of(lambda: email.arguments({"to": 5, "subject": "\ud800"}))


def test_what_is_accepted_can_be_read_or_is_refused_at_submit():
    def job(x: Annotated[date, PlainSerializer(lambda each: f"on {each}")]) -> None: ...

    assert (
        "when read back from its JSON form"
        in problems_of(lambda: Definition.for_function(job).bind((date(2026, 1, 2),), {}))[0]
    )


def test_an_object_that_was_never_valid_is_refused_at_submit():
    def job(x: Address) -> None: ...

    broken = Address.model_construct(street="Elm")

    assert problems_of(lambda: Definition.for_function(job).bind((broken,), {}))


everything = st.fixed_dictionaries(
    {
        "moment": st.datetimes(timezones=st.just(UTC)),
        "day": st.dates(),
        "span": st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
        "key": st.uuids(),
        "price": st.decimals(allow_nan=False, allow_infinity=False),
        "color": st.sampled_from(Color),
        "data": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(str.encode),
        "numbers": st.sets(st.integers()),
        "pairs": st.lists(st.tuples(st.integers(), st.floats(allow_nan=False, allow_infinity=False))),
        "ranges": st.dictionaries(
            st.integers(), st.builds(Range, st.dates(), st.timedeltas(timedelta(0), timedelta(days=9999)))
        ),
        "home": st.none() | st.builds(Address, street=st.just("Elm"), moved=st.datetimes(timezones=st.just(UTC))),
    }
)


def many_types(
    moment: datetime,
    day: date,
    span: timedelta,
    key: UUID,
    price: Decimal,
    color: Color,
    data: bytes,
    numbers: set[int],
    pairs: list[tuple[int, float]],
    ranges: dict[int, Range],
    home: Address | None,
) -> None: ...


@given(everything)
def test_all_arguments_survive_the_way_through_the_table(arguments: dict[str, Any]):
    definition = Definition.for_function(many_types)

    assert definition.arguments(definition.bind((), arguments)) == arguments


# What the worker fills in


def test_the_context_is_filled_in_wherever_it_is_annotated():
    def job(ctx: TaskContext, n: int, again: TaskContext | None = None) -> None: ...

    ctx = context()

    assert Definition.for_function(job).call_with({"n": 1}, ctx) == ((), {"n": 1, "ctx": ctx, "again": ctx})


def test_positional_arguments_skip_what_is_filled_in():
    def job(ctx: TaskContext, n: int) -> None: ...

    assert Definition.for_function(job).bind((5,), {}) == {"n": 5}


def test_a_caller_cannot_give_what_is_filled_in():
    def job(ctx: TaskContext, **rest) -> None: ...

    assert problems_of(lambda: Definition.for_function(job).bind((), {"ctx": 1})) == [
        "'ctx' is filled in by the worker; leave it out"
    ]


def test_the_task_itself_is_filled_in():
    def job(task: Task) -> None: ...

    assert Definition.for_function(job).call_with({}, context()) == ((), {"task": A_TASK})


def test_a_resource_is_found_by_the_name_of_its_parameter():
    def job(db: Annotated[Engine, Resource()]) -> None: ...

    assert Definition.for_function(job).injected(context(db="engine")) == {"db": "engine"}


def test_a_resource_is_found_by_its_own_name():
    def job(db: Annotated[Engine, Resource("main")]) -> None: ...

    assert Definition.for_function(job).injected(context(main="engine")) == {"db": "engine"}


def test_a_resource_may_be_optional_or_marked_by_the_class():
    def job(a: Annotated[Engine, Resource] | None, b: Annotated[Engine | None, Resource("a")]) -> None: ...

    assert Definition.for_function(job).injected(context(a=1)) == {"a": 1, "b": 1}


def test_a_missing_resource_is_named():
    def job(db: Annotated[Engine, Resource()]) -> None: ...

    with pytest.raises(ContextError, match=r"'db' \(set: cache\)"):
        Definition.for_function(job).injected(context(cache=1))


# What cannot be a task


def test_a_positional_only_parameter_is_refused_with_the_remedy():
    def job(a, /): ...

    with pytest.raises(TaskDefinitionError, match=r"'job': parameter 'a' is positional-only.*remove the /"):
        Definition.for_function(job)


def test_variable_positional_parameters_are_refused_with_the_remedy():
    def job(*items): ...

    with pytest.raises(TaskDefinitionError, match=r"\*items .*items: list"):
        Definition.for_function(job)


def test_unpacked_keywords_are_refused_with_the_remedy():
    class Where(TypedDict):
        city: str

    def job(**where: Unpack[Where]): ...

    with pytest.raises(TaskDefinitionError, match=r"'job': \*\*where: Unpack.* where: Where"):
        Definition.for_function(job)


def test_a_class_is_refused():
    with pytest.raises(TaskDefinitionError, match="Engine is a class"):
        Definition.for_function(Engine)


def test_a_generator_is_refused():
    def job():
        yield 1

    with pytest.raises(TaskDefinitionError, match="generator"):
        Definition.for_function(job)


def test_a_function_that_chooses_by_position_is_refused():
    @functools.singledispatch
    def job(value: int) -> None: ...

    with pytest.raises(TaskDefinitionError, match=r"by an argument's position.* write a function"):
        Definition.for_function(job)


def test_what_cannot_be_called_is_refused():
    not_a_function: Any = 5

    with pytest.raises(TaskDefinitionError, match="5 cannot be called"):
        Definition.for_function(not_a_function, name="five")


class Mailer:
    def send(self, to: str) -> str:
        return to

    @staticmethod
    def post(to: str) -> str:
        return to

    @classmethod
    def wire(cls, to: str) -> str:
        return to

    def __call__(self, to: str) -> str:
        return to


class AsyncMailer:
    async def __call__(self, to: str) -> str:
        return to


def test_a_method_without_its_object_is_refused():
    with pytest.raises(TaskDefinitionError, match=r"Mailer\.send is a method"):
        Definition.for_function(Mailer.send)


@pytest.mark.parametrize("method", [Mailer().send, Mailer.post, Mailer.wire])
def test_a_method_that_brings_its_object_is_a_task(method: Any):
    assert Definition.for_function(method).bind(("a",), {}) == {"to": "a"}


def test_a_callable_object_with_a_name_is_a_task():
    assert Definition.for_function(Mailer(), name="mail").bind(("a",), {}) == {"to": "a"}


def test_a_partial_with_a_name_asks_for_the_rest():
    partial = functools.partial(send_email, "a@b.c")

    assert Definition.for_function(partial, name="mail").bind((), {"subject": "Hi"}) == {"subject": "Hi"}


def test_a_wrapped_function_is_validated_as_what_it_wraps():
    @functools.wraps(send_email)
    def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    assert problems_of(lambda: Definition.for_function(wrapper).bind((5, "b"), {})) == [
        "'to': Input should be a valid string (got 5)"
    ]


def test_a_field_as_default_is_refused_with_the_remedy():
    def job(n: int = Field(5, gt=0)) -> None: ...

    with pytest.raises(TaskDefinitionError, match=r"'n' is a Pydantic Field.*Annotated"):
        Definition.for_function(job)


def test_a_type_pydantic_does_not_know_is_named_at_the_first_submission():
    def job(n: int, engine: Engine) -> None: ...

    definition = Definition.for_function(job)

    with pytest.raises(TaskDefinitionError, match=r"'job': parameter 'engine', annotated .*Engine.*Resource"):
        definition.bind((1, 2), {})


def test_a_worker_can_ask_for_that_before_the_first_task():
    def job(engine: Engine) -> None: ...

    with pytest.raises(TaskDefinitionError, match="engine"):
        Definition.for_function(job).prepare()


# Other facts


@pytest.mark.parametrize(
    "function, is_async",
    [
        (send_email, False),
        (AsyncMailer(), True),
        (Mailer(), False),
        (functools.partial(AsyncMailer().__call__, "a"), True),
    ],
)
def test_a_definition_knows_whether_to_await(function: Any, is_async: bool):
    assert Definition.for_function(function, name="job").is_async is is_async


async def fetch() -> None: ...


@pytest.mark.parametrize("handler", [fetch, AsyncMock(), functools.partial(fetch)])
def test_an_async_handler_is_awaited(handler: Any):
    assert Definition.for_handler("job", handler).is_async


def test_parameters_named_like_options_of_submit_task_are_told():
    def job(priority: int, tags: list[str], other: int) -> None: ...

    assert Definition.for_function(job).shadowed_options() == ("priority", "tags")


def test_the_place_names_module_function_and_line():
    assert email.place.endswith(f"test_definition.send_email ({__file__}:{send_email.__code__.co_firstlineno})")


def test_a_function_task_accepts_arguments():
    assert email.accepts == "arguments"


def test_options_are_kept():
    assert Definition.for_function(send_email, options=TaskOptions(priority=5)).options.priority == 5


# Handlers


def call(handler: Any, payload: Any = None, *, of: Any = None, **resources: Any) -> Any:
    return Definition.for_handler("job", handler, payload=of).call_with(payload, context(**resources))


@pytest.mark.parametrize("payload", [{"url": "u"}, [1], "text", 5, None])
def test_a_handler_gets_any_payload_as_it_is(payload: Any):
    def handler(payload): ...

    assert call(handler, payload) == ((payload,), {})


def test_a_handler_that_would_not_get_the_payload_is_refused():
    with pytest.raises(TaskDefinitionError, match=r"\*\*options does not take; write options without the stars"):
        Definition.for_handler("job", lambda **options: None)


def test_a_handler_annotated_so_gets_the_task():
    def handler(task: Task) -> None: ...

    definition = Definition.for_handler("job", handler)

    assert (definition.call_with(A_TASK.kwargs, context()), definition.accepts) == (((), {"task": A_TASK}), "task")


def test_a_handler_may_take_payload_task_context_and_resources():
    def handler(task: Task, /, payload, *, ctx: TaskContext, db: Annotated[Engine, Resource()]) -> None: ...

    args, kwargs = call(handler, 5, db="engine")

    assert (args, kwargs["payload"], kwargs["ctx"].task, kwargs["db"]) == ((A_TASK,), 5, A_TASK, "engine")


def test_a_typed_payload_arrives_as_its_type():
    def handler(crawl: Crawl) -> None: ...

    assert call(handler, {"url": "u"}) == ((Crawl(url="u"),), {})


def test_a_payload_type_given_apart_wins():
    def handler(crawl: Any) -> None: ...

    assert call(handler, {"url": "u"}, of=Crawl) == ((Crawl(url="u"),), {})


def test_a_keyword_only_payload_is_given_by_name():
    def handler(*, crawl: Crawl) -> None: ...

    assert call(handler, {"url": "u"}) == ((), {"crawl": Crawl(url="u")})


@pytest.mark.parametrize("annotation", [Any, object, dict, dict[str, Any]])
def test_a_payload_annotated_as_anything_is_not_converted(annotation: Any):
    def handler(payload) -> None: ...

    handler.__annotations__["payload"] = annotation
    stored = {"when": "2026-01-02"}

    assert call(handler, stored)[0][0] is stored


def test_a_stored_payload_that_does_not_fit_says_so():
    def handler(crawl: Crawl) -> None: ...

    with pytest.raises(InvalidArguments, match=r"stored arguments do not fit .*'url' is missing"):
        call(handler, {"uri": "u"})


def test_a_typed_payload_is_checked_at_submit():
    def handler(crawl: Crawl) -> None: ...

    assert problems_of(lambda: Definition.for_handler("job", handler).bind_payload({})) == ["'url' is missing"]


def test_a_model_as_payload_is_stored_as_json():
    def handler(crawl: Crawl) -> None: ...

    assert Definition.for_handler("job", handler).bind_payload(Crawl(url="u")) == {"url": "u"}


def test_an_untyped_payload_is_stored_as_plain_json():
    assert Definition.for_handler("job", lambda p: None).bind_payload({"at": (NOW,)}) == {
        "at": ["2026-01-02T03:04:05Z"]
    }


def test_an_untyped_payload_over_the_limit_is_refused():
    with pytest.raises(InvalidPayload, match="bytes of JSON"):
        Definition.for_handler("job", lambda p: None).bind_payload("x" * 100, limit=100)


def test_a_handler_can_be_submitted_with_keyword_arguments_as_its_payload():
    assert Definition.for_handler("job", lambda p: None).bind((), {"url": "u"}) == {"url": "u"}


def test_a_handler_takes_one_payload_only():
    assert problems_of(lambda: Definition.for_handler("job", lambda p: None).bind((1, 2), {}))


def test_a_handler_that_takes_nothing_is_called_with_nothing():
    assert call(lambda: None, {"url": "u"}) == ((), {})


def test_a_handler_that_requires_more_is_refused():
    with pytest.raises(TaskDefinitionError, match=r"'job': .* also requires 'other'"):
        Definition.for_handler("job", lambda payload, other: None)


def test_a_handler_may_have_further_parameters_with_defaults():
    assert call(lambda payload, other=1: None, 5) == ((5,), {})


@pytest.mark.parametrize("handler", [Mock(), AsyncMock(), print, max])
def test_a_handler_that_takes_whatever_comes_gets_the_payload(handler: Any):
    assert call(handler, 5) == ((5,), {})


# Compiling


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    """Threads take turns so often that a missing lock shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_eager_threads")
def test_the_type_is_compiled_once_however_many_threads_come_first():
    built: list[int] = []
    together = threading.Barrier(8)

    def build() -> Any:
        built.append(1)
        return list[int]

    validation = Validation("job", build)

    def accept(n: int) -> Any:
        together.wait()
        return validation.accept([n])

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(accept, range(8)))

    assert (results, built) == ([[n] for n in range(8)], [1])


def test_defining_tasks_does_not_import_pydantic():
    code = (
        "import sys\n"
        "from tasklib.definition import Definition, TaskOptions, Registry\n"
        "def job(a: int, b: 'list[str]' = []): ...\n"
        "def tick(): ...\n"
        "Registry().add(Definition.for_function(job, options=TaskOptions(max_retries=1)))\n"
        "assert Definition.for_function(tick).bind((), {}) == {}\n"
        "print(sorted(name for name in sys.modules if name.startswith(('pydantic', 'psycopg'))))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output == "[]\n"


def test_a_validator_with_an_error_of_its_own_says_it():
    def refuse(n: int) -> int:
        raise ValueError("only on Sundays")

    def job(n: Annotated[int, AfterValidator(refuse)]) -> None: ...

    assert problems_of(lambda: Definition.for_function(job).bind((5,), {})) == [
        "'n': Value error, only on Sundays (got 5)"
    ]


# What the worker fills in, said to type checkers


def test_injected_says_what_it_is_when_it_is_used():
    def job(path: str, ctx: TaskContext = injected()) -> int:
        return ctx.attempt

    with pytest.raises(ContextError, match=r"fills in this parameter, and nobody did here: \.attempt"):
        job("rows.csv")


def test_injected_needs_an_annotation_that_says_what():
    def job(path: str, limit: int = injected()) -> None: ...

    with pytest.raises(TaskDefinitionError, match=r"'limit' has the default injected\(\), but its annotation does not"):
        Definition.for_function(job)


def test_injected_is_the_default_of_a_resource_too():
    def job(path: str, engine: Annotated[Engine, Resource()] = injected()) -> None: ...

    engine = Engine()
    definition = Definition.for_function(job)

    assert definition.bind(["x"], {}) == {"path": "x"}
    assert definition.call_with({"path": "x"}, context(engine=engine)) == ((), {"path": "x", "engine": engine})


def test_with_context_the_first_parameter_is_the_context():
    def job(ctx, path: str) -> None: ...

    definition, ctx = Definition.for_function(job, context=True), context()

    assert definition.bind(["x"], {}) == {"path": "x"}
    assert definition.call_with({"path": "x"}, ctx) == ((), {"ctx": ctx, "path": "x"})


@pytest.mark.parametrize(
    "job, problem",
    [
        (lambda: None, "it has no parameter"),
        (lambda *, ctx: None, "begins with 'ctx'"),
        (lambda **ctx: None, "begins with 'ctx'"),
        (send_email, "'to' is annotated <class 'str'>"),
    ],
)
def test_a_first_parameter_that_cannot_be_the_context_is_refused(job: Callable[..., Any], problem: str):
    with pytest.raises(TaskDefinitionError, match=f"context=True fills its first parameter, but .*{problem}"):
        Definition.for_function(job, name="job", context=True)


def test_a_function_that_cannot_await_gets_no_awaiting_context():
    def job(ctx: AsyncTaskContext) -> None: ...

    with pytest.raises(TaskDefinitionError, match="annotated AsyncTaskContext, but the function is no `async def`"):
        Definition.for_function(job)


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_context_is_true_or_false(wrong: Any):
    with pytest.raises(ConfigurationError, match=f"task 'job': context must be True or False, got {wrong!r}"):
        TaskQueue("sqlite:///:memory:").task(name="job", context=wrong)(lambda ctx: None)


STARS = "*" * 10
"""Looks like a hidden secret, so that arguments are written a second time."""


@pytest.mark.parametrize(
    "rows",
    [
        [{"x": io.BytesIO(b"a\xff")}],
        [{"x": map(str, [1])}, {"x": STARS}],
    ],
    ids=["one", "many"],
)
def test_an_iterator_that_was_read_in_vain_is_refused_and_not_stored_as_empty(rows: list[dict[str, Any]]):
    def keep(x): ...

    with TaskQueue("sqlite:///:memory:") as queue:
        task = queue.task(keep)
        with pytest.raises(InvalidArguments, match="an iterator can be read only once"):
            task.submit(**rows[0]) if len(rows) == 1 else task.submit_many(rows)
        assert queue.count() == 0
