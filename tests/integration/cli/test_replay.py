"""replay: today's code against what waiting workflows have recorded, before it is deployed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tasklib import AsyncTaskContext, TaskQueue
from tasklib.service.service import QueueService
from tasklib.service.workflows import replay as replays
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")

OLD = """
import os
from pathlib import Path
from pydantic import SecretStr
from tasklib import AsyncTaskContext, TaskContext, TaskQueue

queue = TaskQueue(os.environ["REPLAY_URL"])


def note(what: str) -> str:
    with Path(os.environ["REPLAY_LOG"]).open("a") as log:
        log.write(what + " ")
    return what


@queue.task
def other() -> None: ...


@queue.task(context=True)
def sale(ctx: TaskContext, order: int) -> str:
    other.submit()
    paid = ctx.step(note, "charge")
    ctx.wait("shipped", str)
    return paid


@queue.task(context=True)
async def trip(ctx: AsyncTaskContext) -> list[str]:
    found = [await ctx.step(note, name) for name in ("hotel", "flight")]
    await ctx.sleep(86400)
    return found


@queue.task(context=True)
def quiet(ctx: TaskContext, pin: SecretStr) -> None:
    ctx.step(note, "before")
    ctx.wait(f"for {pin.get_secret_value()}")


@queue.task(context=True)
def part(ctx: TaskContext, n: int) -> int:
    return n


@queue.task(context=True)
def total(ctx: TaskContext) -> int:
    made = ctx.map(part, [{"n": 1}, {"n": 2}])
    found = sum(made.results())
    ctx.wait("go on", str)
    return found
"""


@pytest.fixture
def project(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the module that made what waits."""
    monkeypatch.setenv("REPLAY_URL", database_url)
    monkeypatch.setenv("REPLAY_LOG", str(tmp_path / "log"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_old.py").write_text(OLD)
    monkeypatch.syspath_prepend(str(tmp_path))
    import shop_old  # type: ignore[import-not-found]

    made: TaskQueue = shop_old.queue
    shop_old.sale.submit(order=1)
    shop_old.trip.submit()
    shop_old.quiet.submit("s3cret")
    shop_old.total.submit()
    while made.process_batch():
        pass
    made.close()
    sys.modules.pop("shop_old")
    return tmp_path


def changed(project: Path, *changes: tuple[str, str]) -> None:
    """Today's code."""
    text = OLD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (project / "shop_new.py").write_text(text)
    sys.modules.pop("shop_new", None)


def outcomes(answer: dict[str, Any]) -> dict[str, bool]:
    return {each["name"]: each["fits"] for each in answer["replayed"]}


def test_code_that_fits_executes_nothing(tasklib: CommandLine, queue: TaskQueue, project: Path) -> None:
    changed(project, ("ctx.wait(", "ctx.step(note, 'new'); ctx.wait("))
    before, tasks = (project / "log").read_text(), queue.count()
    said = tasklib.ok("replay", "shop_new", "--waiting")
    assert "4 replayed, 0 differ." in said
    assert "for ****" in said
    assert "s3cret" not in said
    assert "goes on at 'note" in said
    assert ((project / "log").read_text(), queue.count()) == (before, tasks)


def test_what_is_left_out_is_counted(tasklib: CommandLine, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shop_old  # type: ignore[import-not-found]

    made: TaskQueue = shop_old.queue
    shop_old.sale.submit(order=2)
    while made.process_batch():
        pass
    made.close()
    sys.modules.pop("shop_old")
    monkeypatch.setattr(replays, "MOST", 1)
    changed(project)
    said = tasklib.ok("replay", "shop_new", "--waiting")
    assert "sale: 1 older not replayed" in said
    assert "trip: " not in said
    assert json.loads(tasklib.ok("replay", "shop_new", "--waiting", "--json"))["left_out"] == {"sale": 1}


def test_a_divergence_is_named_with_both_sides(tasklib: CommandLine, project: Path) -> None:
    changed(
        project,
        ('paid = ctx.step(note, "charge")', 'paid = str(ctx.options(name="note").sleep(5))'),
        ('("hotel", "flight")', '("flight", "hotel")'),
    )
    done = tasklib.run("replay", "shop_new", "--waiting")
    assert (done.code, "2 differ." in done.out) == (1, True)
    assert "differs at 'note'" in done.out
    assert "recorded: a step" in done.out
    assert "the code: a sleep" in done.out
    found = json.loads(tasklib.run("replay", "shop_new", "--waiting", "--json").out)
    assert (found["differing"], outcomes(found)) == (2, {"sale": False, "trip": False, "quiet": True, "total": True})


def test_arguments_that_new_code_refuses_and_errors_are_divergences(tasklib: CommandLine, project: Path) -> None:
    changed(project, ("order: int", "order: list[int]"), ("    return found\n", "    raise ValueError(1)\n"))
    found = json.loads(tasklib.run("replay", "shop_new", "--waiting", "--json").out)
    assert outcomes(found) == {"sale": False, "trip": True, "quiet": True, "total": True}
    changed(project, ("    await ctx.sleep(86400)\n", "    raise ValueError('soon')\n"))
    found = json.loads(tasklib.run("replay", "shop_new", "--waiting", "--json").out)
    (trip,) = [each for each in found["replayed"] if each["name"] == "trip"]
    assert (trip["fits"], trip["recorded"], trip["asked"]) == (False, "a sleep, open", "ValueError: soon")


def test_from_a_file_without_the_database(tasklib: CommandLine, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(project)
    tasklib.ok("replay", "shop_new", "--waiting", "--save", "recorded.jsonl")
    lines = (project / "recorded.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["task"]["name"] != "total"]  # reads results of its children
    (project / "recorded.jsonl").write_text("\n".join(kept))
    nowhere = "postgresql://nobody@nowhere.invalid/x"
    monkeypatch.setenv("REPLAY_URL", nowhere)
    tasklib.url = nowhere
    changed(project, ("    other.submit()\n", ""))
    assert "3 replayed, 0 differ." in tasklib.ok("replay", "shop_new", "--file", "recorded.jsonl")
    (project / "broken.jsonl").write_text("{}\n")
    assert "no line" in tasklib.fails(2, "replay", "shop_new", "--file", "broken.jsonl")
    assert "cannot read" in tasklib.fails(2, "replay", "shop_new", "--file", "missing.jsonl")


def test_what_to_replay_must_be_said(tasklib: CommandLine, project: Path) -> None:
    changed(project)
    assert tasklib.run("replay", "shop_new").code == 2
    assert tasklib.run("replay", "shop_new", "--waiting", "--file", "x").code == 2


def test_a_replay_stops_at_the_open_flow_also_where_another_step_was_opened_before(queue: TaskQueue) -> None:
    @queue.task
    def part(n: int) -> int:
        return n

    @queue.task(context=True)
    async def whole(ctx: AsyncTaskContext) -> None:
        flow = queue.flow("parts")
        flow.add(part.bind(1))
        approved, parts = ctx.wait("approved"), ctx.run(flow)
        await asyncio.gather(parts, approved)

    task_id = whole.submit()
    queue.process_batch(limit=1)
    replays = QueueService(queue).replays
    found = replays.replay(replays.case(task_id), replays.children())

    assert found is not None
    assert (found.fits, found.key, found.asked) == (True, "parts", "restart_children")
