"""tools/check_test_time.py fails on what it is there for, and on nothing else."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tools.check_test_time import find_problems


def messages(folder: Path, body: str, rest: str = "") -> list[str]:
    (folder / "test_it.py").write_text(f"LIMIT = 3.0\n{rest}\ndef test_it():\n{indent(body, '    ')}\n")
    return [problem.message for problem in find_problems(folder)]


@pytest.mark.parametrize(
    "body",
    [
        "began = time.monotonic()\nwork()\nassert time.monotonic() - began < 2",
        "began = perf_counter()\ntook = perf_counter() - began\nassert round(took, 1) <= 2",
        "until = time.time() + 5\nwork()\nassert time.time() < until",
        "began = datetime.now(UTC)\nassert task.completed_at < began + timedelta(seconds=1)",
        "began = loop.time()\nassert 1 < (asyncio.get_running_loop().time() - began)",
        "assert task.started_at - task.created_at < timedelta(seconds=1)",
        "assert (task.completed_at - task.started_at).total_seconds() == pytest.approx(5, abs=1)",
        "async def inner():\n    began = time.monotonic()\n    assert all(each < began + 1 for each in moments)",
    ],
)
def test_a_bound_of_elapsed_time_fails(tmp_path: Path, body: str) -> None:
    assert [message.partition(":")[0] for message in messages(tmp_path, body)] == ["bounds elapsed time"]


def test_what_a_function_of_the_file_measures_fails_too(tmp_path: Path) -> None:
    measure = "def took(work):\n    began = time.monotonic()\n    work()\n    return time.monotonic() - began\n"
    assert messages(tmp_path, "assert took(work) < 2", measure) == ["bounds elapsed time: took(work) < 2"]


@pytest.mark.parametrize(
    "body",
    [
        "assert done.wait(5)",
        "assert future.result(10) == 1",
        "assert future.result(timeout=LIMIT) == 1",
        "eventually(lambda: done, timeout=LIMIT)",
        "eventually(lambda: done, 20)",
        "queue.wait(task_id, 20)",
        "assert not any(future.result(10) for future in futures)",
        "subprocess.run(command, timeout=10)",
        "process.communicate(timeout=10)",
        "httpx.get(url)",
        "with httpx.Client(base_url=url) as client: ...",
    ],
)
def test_a_wait_that_gives_up_soon_fails(tmp_path: Path, body: str) -> None:
    assert [message.partition(" after ")[0] for message in messages(tmp_path, body)] == ["gives up"]


@pytest.mark.parametrize(
    "body",
    [
        "before = datetime.now(UTC)\nassert before <= task.created_at <= datetime.now(UTC)",
        "later = datetime.now(UTC) + timedelta(hours=1)\nassert task.scheduled_at == later",
        "assert (task.due_at - NOON).total_seconds() == 60",
        "until = time.monotonic() + 5\neventually(lambda: time.monotonic() > until)",
        "while time.monotonic() < until:\n    work()",
        "assert not done.wait(2)",
        "with pytest.raises(WaitTimeout):\n    queue.wait(task_id, 1)",
        "assert done.wait(60)",
        "stop.wait(0.05)",
        "timing.wait(event, 10)",
        "', '.join(words)",
        "httpx.get(url, timeout=60)",
        "httpx.AsyncClient(transport=transport)",
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, body: str) -> None:
    assert messages(tmp_path, body) == []


def test_the_long_form_may_bound_time(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "@pytest.mark.chaos\ndef test_it():\n    began = time.monotonic()\n    assert time.monotonic() - began < 2\n"
    )
    assert find_problems(tmp_path) == []
