"""The tasks a queue knows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tasklib.definition import Definition, Registry, TaskOptions
from tasklib.errors import TaskDefinitionError, TaskNotRegistered


def send_email(to: str) -> None: ...


def send_letter(to: str) -> None: ...


def reloaded_send_email(to: str) -> None: ...


reloaded_send_email.__qualname__ = "send_email"


def a_registry(*definitions: Definition) -> Registry:
    registry = Registry()
    for each in definitions:
        registry.add(each)
    return registry


EMAIL = Definition.for_function(send_email, options=TaskOptions(aliases=("mail", "post")))


def test_a_task_is_found_by_name():
    assert a_registry(EMAIL).get("send_email") is EMAIL


def test_a_task_is_found_by_a_name_it_had_before():
    assert a_registry(EMAIL).get("post") is EMAIL


def test_an_unknown_name_gives_none():
    assert a_registry(EMAIL).get("letter") is None


def test_the_names_to_claim_include_aliases():
    assert a_registry(EMAIL).names() == ["send_email", "mail", "post"]


def test_the_items_do_not():
    assert a_registry(EMAIL).items() == [("send_email", EMAIL)]


class Decorated:
    """What a decorator leaves in place of the function."""

    definition = EMAIL


@pytest.mark.parametrize("target", ["send_email", "mail", send_email, EMAIL, Decorated()])
def test_a_task_is_found_by_whatever_a_caller_has(target: Any):
    assert a_registry(EMAIL).find(target) is EMAIL


def test_a_bound_method_is_found_although_each_access_makes_a_new_one():
    class Mailer:
        def send(self) -> None: ...

    mailer = Mailer()
    definition = Definition.for_function(mailer.send)

    assert a_registry(definition).find(mailer.send) is definition


@pytest.mark.parametrize("target, name", [("letter", "letter"), (send_letter, "send_letter")])
def test_what_is_not_known_is_named_with_what_is(target: Any, name: str):
    with pytest.raises(TaskNotRegistered) as caught:
        a_registry(EMAIL).find(target)

    assert (caught.value.name, caught.value.known) == (name, ["mail", "post", "send_email"])


def test_two_functions_of_one_name_are_refused_with_both_places():
    registry = a_registry(EMAIL)

    with pytest.raises(TaskDefinitionError, match=r"'send_email': .*send_email \(.*send_letter \("):
        registry.add(Definition.for_function(send_letter, name="send_email"))


def test_an_alias_that_is_another_tasks_name_is_refused():
    registry = a_registry(EMAIL)

    with pytest.raises(TaskDefinitionError, match="two tasks are named 'send_email'"):
        registry.add(Definition.for_function(send_letter, options=TaskOptions(aliases=("send_email",))))


def test_a_refused_task_leaves_the_registry_as_it_was():
    registry = a_registry(EMAIL)
    with pytest.raises(TaskDefinitionError):
        registry.add(Definition.for_function(send_letter, options=TaskOptions(aliases=("mail",))))

    assert registry.names() == ["send_email", "mail", "post"]


def test_a_module_loaded_again_replaces_its_task_and_its_aliases():
    registry = a_registry(EMAIL)
    again = registry.add(Definition.for_function(reloaded_send_email, name="send_email"))

    assert (registry.get("send_email"), registry.names()) == (again, ["send_email"])


def test_two_lambdas_are_two_functions():
    registry = a_registry(Definition.for_handler("job", lambda p: 1))

    with pytest.raises(TaskDefinitionError, match="two tasks are named 'job'"):
        registry.add(Definition.for_handler("job", lambda p: 2))


def test_one_function_may_be_two_tasks():
    registry = a_registry(Definition.for_function(send_letter), Definition.for_function(send_letter, name="urgent"))

    assert registry.names() == ["send_letter", "urgent"]


def test_a_removed_task_is_forgotten_with_its_aliases():
    registry = a_registry(EMAIL)
    removed = registry.remove("send_email")

    assert (removed, registry.names(), "mail" in registry) == (EMAIL, [], False)


def test_removing_an_unknown_task_gives_none():
    assert Registry().remove("letter") is None


def test_a_registry_can_be_counted_and_walked():
    registry = a_registry(EMAIL)

    assert (len(registry), list(registry)) == (1, [EMAIL])


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    """Threads take turns so often that a missing lock shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_eager_threads")
def test_tasks_added_by_many_threads_are_all_kept():
    registry = Registry()
    together = threading.Barrier(8)

    def add(worker: int) -> None:
        together.wait()
        for n in range(20):
            registry.add(Definition.for_handler(f"job-{worker}-{n}", send_letter))

    threads = [threading.Thread(target=add, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(registry) == 160
