"""tools/check_timing.py fails on what it is there for, and on nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_timing import EXCEPTIONS, find_problems
from tools.problems import ROOT


def problems(tmp_path: Path, text: str, file: str = "worker/upkeep/some.py") -> int:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return len(find_problems(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "time.monotonic()",
        "clock = time.time",
        "from time import sleep",
        "await asyncio.sleep(1)",
        "async with asyncio.timeout(seconds): ...",
        "await asyncio.wait_for(event.wait(), 1)",
        "await asyncio.wait(tasks, timeout=1)",
        "loop.call_later(1, act)",
        "stopped.wait(0.5)",
        "thread.join(timeout=5)",
        "threading.Timer(1, act)",
        "datetime.now(UTC)",
    ],
)
def test_asking_for_time_by_itself_fails(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "self._timing.monotonic()",
        "await timing.sleep(1)",
        "await self.queue.timing.wait(event, 0.5)",
        "self._timing.call_later(1, act)",
        "await asyncio.sleep(0)",
        "await asyncio.wait(tasks)",
        "await event.wait()",
        '", ".join(names)',
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == 0


def test_other_layers_may_ask_the_machine(tmp_path: Path) -> None:
    assert problems(tmp_path, "time.monotonic()", "cli/bench_run.py") == 0


def test_every_exception_exists() -> None:
    assert [each for each in EXCEPTIONS if not (ROOT / "src/tasklib" / each).exists()] == []
