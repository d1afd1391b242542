"""The options of a task, checked when they are said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasklib.definition import TaskOptions
from tasklib.errors import Abort, ConfigurationError, ResultError, Retry


def test_the_defaults_leave_the_choice_to_the_configuration():
    options = TaskOptions()

    assert (options.max_retries, options.timeout_seconds, options.priority, options.isolation) == (
        None,
        None,
        0,
        "auto",
    )


@pytest.mark.parametrize(
    "name, value",
    [
        ("max_retries", -1),
        ("max_retries", 1.0),
        ("max_retries", True),
        ("max_retries", 2**31),
        ("timeout_seconds", 0),
        ("timeout_seconds", float("nan")),
        ("timeout_seconds", float("inf")),
        ("timeout_seconds", "30"),
        ("timeout_seconds", 1e9),
        pytest.param("timeout_seconds", 10**400, id="giant"),
        ("priority", "high"),
        ("priority", 2**31),
        ("tags", ["a"]),
        ("retry_on", "IOError"),
        ("retry_on", (OSError(),)),
        ("abort_on", (int,)),
        ("retry_policy", 5),
        ("isolation", "fiber"),
        ("isolation", None),
        ("transactional", 1),
        ("aliases", 5),
        ("max_concurrency", 0),
        ("concurrency_key", ""),
        ("concurrency_key", "a\0"),
        ("expires_after", -1),
        ("lifetime_seconds", 0),
    ],
)
def test_an_option_that_cannot_work_is_named_with_task_and_value(name: str, value: Any):
    with pytest.raises(ConfigurationError, match=f"task 'job': {name} must be .*, got "):
        TaskOptions.for_task("job", **{name: value})


def test_tags_that_are_not_json_say_where():
    with pytest.raises(ConfigurationError, match="task 'job': tags must be JSON: 'a': NaN"):
        TaskOptions.for_task("job", tags={"a": float("nan")})


def test_an_alias_that_is_no_name_is_refused():
    with pytest.raises(ConfigurationError, match="an alias must be"):
        TaskOptions.for_task("job", aliases=("",))


def test_an_unknown_option_is_answered_with_the_one_that_was_meant():
    with pytest.raises(ConfigurationError, match=r"task 'job' has no option 'retries'; did you mean 'max_retries'\?"):
        TaskOptions.for_task("job", retries=3)


def test_an_option_nobody_could_have_meant_is_answered_with_all():
    with pytest.raises(ConfigurationError, match=r"the options are max_retries, timeout_seconds, "):
        TaskOptions.for_task("job", qqq=3)


def test_one_error_class_needs_no_tuple():
    assert TaskOptions.for_task("job", retry_on=OSError).retry_on == (OSError,)


def test_one_alias_needs_no_tuple():
    assert TaskOptions.for_task("job", aliases="old").aliases == ("old",)


def test_tags_are_a_copy():
    tags = {"batch": "daily"}
    options = TaskOptions(tags=tags)
    tags["batch"] = "weekly"

    assert options.tags == {"batch": "daily"}


def test_a_changed_copy_is_checked_again():
    with pytest.raises(ConfigurationError, match="timeout_seconds"):
        replace(TaskOptions(), timeout_seconds=-1)


@pytest.mark.parametrize(
    "options, error, retried",
    [
        (TaskOptions(), ValueError(), True),
        (TaskOptions(), Retry(), True),
        (TaskOptions(), Abort(), False),
        (TaskOptions(), ResultError(), False),
        (TaskOptions(retry_on=(OSError,)), ConnectionError(), True),
        (TaskOptions(retry_on=(OSError,)), ValueError(), False),
        (TaskOptions(abort_on=(KeyError,)), KeyError(), False),
        (TaskOptions(abort_on=(KeyError,)), ValueError(), True),
        (TaskOptions(retry_on=(LookupError,), abort_on=(KeyError,)), KeyError(), False),
        (TaskOptions(retry_on=()), ValueError(), False),
    ],
)
def test_the_kind_of_error_decides_whether_to_retry(options: TaskOptions, error: BaseException, retried: bool):
    assert options.retries(error) is retried
