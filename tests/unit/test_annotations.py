"""Annotations written as text, whose names may live in many places or nowhere yet."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

from tasklib.core.calls.resources import Resource
from tasklib.definition import Definition
from tasklib.definition.parameters import Role, read_parameters
from tasklib.errors import TaskDefinitionError

if TYPE_CHECKING:
    from nowhere import Engine, Report, Task, TaskContext  # pyright: ignore[reportMissingImports]


def roles(function: Any) -> dict[str, Role]:
    return {each.name: each.role for each in read_parameters(function, "job")}


def uses_later(item: Later, items: list[Later]) -> None: ...


definition_made_before_its_type = Definition.for_function(uses_later)


@dataclass
class Later:
    n: int


def test_a_type_defined_after_the_task_is_found_at_the_first_use():
    stored = definition_made_before_its_type.bind((Later(1), [Later(2)]), {})

    assert definition_made_before_its_type.arguments(stored) == {"item": Later(1), "items": [Later(2)]}


def test_a_type_defined_in_the_function_around_is_found():
    @dataclass
    class Local:
        n: int

    def job(item: Local, items: list[Local]) -> None: ...

    definition = Definition.for_function(job)

    assert definition.arguments({"item": {"n": 1}, "items": []}) == {"item": Local(1), "items": []}


def test_a_type_in_the_closure_is_found_after_the_function_around_has_returned():
    def make() -> Any:
        @dataclass
        class Local:
            n: int

        def job(item: Local) -> Local:
            return Local(item.n)

        return job

    job = make()

    assert Definition.for_function(job).arguments({"item": {"n": 1}})["item"] == job(Later(1))


def test_a_type_parameter_of_a_wrapper_module_is_not_needed():
    @functools.wraps(uses_later)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert Definition.for_function(wrapper).arguments({"item": {"n": 1}, "items": []})["item"] == Later(1)


def test_a_name_that_never_appears_is_told_at_the_first_use_with_the_remedy():
    def job(report: Report) -> None: ...

    definition = Definition.for_function(job)

    with pytest.raises(TaskDefinitionError, match=r"'job': the annotation Report of parameter 'report'.*TYPE_CHECKING"):
        definition.bind((1,), {})


def test_one_unknown_name_does_not_hide_the_other_parameters():
    def job(report: Report, ctx: TaskContext) -> None: ...

    assert roles(job) == {"report": Role.ARGUMENT, "ctx": Role.CONTEXT}


def test_the_context_is_known_by_name_where_it_is_imported_for_type_checkers_only():
    def job(a: TaskContext, b: TaskContext | None, c: Optional[TaskContext], d: Task) -> None: ...  # noqa: UP045

    assert list(roles(job).values()) == [Role.CONTEXT, Role.CONTEXT, Role.CONTEXT, Role.TASK]


def test_a_resource_may_have_a_type_that_is_imported_for_type_checkers_only():
    def job(db: Annotated[Engine, Resource("main")]) -> None: ...

    (parameter,) = read_parameters(job, "job")

    assert (parameter.role, parameter.resource) == (Role.RESOURCE, "main")


@pytest.mark.parametrize("quote", ["'", ""] if sys.version_info >= (3, 14) else ["'"])
def test_types_for_type_checkers_only_need_no_future_import(quote: str):
    """From Python 3.14 on, such annotations need no quotes either."""
    program = """
from typing import TYPE_CHECKING, Annotated
from tasklib import Resource, TaskQueue
if TYPE_CHECKING:
    from nowhere import Engine
    from tasklib import TaskContext

with TaskQueue("sqlite:///:memory:") as queue:
    @queue.on_startup
    def open_database(state):
        state.db = "open"

    @queue.task
    def job(n: int, ctx: ~TaskContext~, db: ~Annotated[Engine, Resource()]~) -> list:
        return [n, ctx.attempt, db]

    task_id = job.submit(7)
    queue.process_batch()
    print(queue.get(task_id).result["value"])
"""
    answer = subprocess.run([sys.executable, "-c", program.replace("~", quote)], capture_output=True, text=True)
    assert answer.stdout == "[7, 1, 'open']\n", answer.stderr


def test_an_annotation_that_is_no_expression_is_refused_at_once():
    def job(n): ...

    job.__annotations__["n"] = "a number, please"

    with pytest.raises(TaskDefinitionError, match="parameter 'n' is not a type"):
        Definition.for_function(job)


@pytest.mark.parametrize("annotation", ["[int]", [int], "{'a': int}", 5, "(int, str)"])
def test_an_annotation_that_is_a_value_is_refused_at_once(annotation: Any):
    def job(n): ...

    job.__annotations__["n"] = annotation

    with pytest.raises(TaskDefinitionError, match="parameter 'n' is not a type"):
        Definition.for_function(job)
