"""How `tasklib top` shows what it sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tasklib.cli.show.output import Column, rendered

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tasklib.cli.show.output import Output

Look = dict[str, Any]
MOST_FINDINGS = 5


def show(out: Output, seen: Look) -> None:
    """Print what was seen, once."""
    for title, columns, rows in _tables(seen):
        out.line(title)
        out.table(columns, rows)
        out.line()


def live(look: Callable[[], Look], interval: float) -> None:
    """Show it again and again, in place, until interrupted."""
    from rich.live import Live

    with Live(_screen(look()), screen=True, auto_refresh=False) as display:
        while True:
            time.sleep(interval)
            display.update(_screen(look()), refresh=True)


def _screen(seen: Look) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = []
    for title, columns, rows in _tables(seen):
        parts += [rendered(columns, rows, title), ""]
    return Group(*parts)


def _tables(seen: Look) -> list[tuple[str, list[Column], list[list[str]]]]:
    paused = " (paused)" if None in seen["paused"] else ""
    states = [[name, f"{count:,}"] for name, count in seen["stats"].items()]
    outcomes = ("completed", "failed", "retried", "cancelled", "buried")
    minutes = [
        [each["at"].astimezone().strftime("%H:%M"), *(f"{each.get(name, 0):,}" for name in outcomes)]
        for each in reversed(seen["per_minute"])
    ]
    workers = [
        [each["worker_id"], each["host"], f"{each['running']}/{each['concurrency']}", "yes" if each["alive"] else "NO"]
        for each in seen["workers"]
    ]
    wrong = [[each["text"], each["severity"], f"{each['count']:,}"] for each in seen["findings"][:MOST_FINDINGS]]
    timing = ("TYPE", "DONE", "FAILED", "RUN P50", "RUN P95", "WAIT P95")
    tables = [
        *([("Now", ("FINDING", "SEVERITY", "TASKS"), wrong)] if wrong else []),
        (f"Tasks{paused}", ("STATE", "TASKS"), states),
        ("Attempts by minute", ("MINUTE", *(name.upper() for name in outcomes)), minutes),
        ("Slowest types of the last hour", timing, [_type(each) for each in seen["slowest"]]),
        ("Failing types of the last hour", timing, [_type(each) for each in seen["failing"]]),
        ("Workers", ("WORKER", "HOST", "RUNNING", "ALIVE"), workers),
    ]
    return [
        (title, [Column(name, right=number > 0) for number, name in enumerate(names)], rows)
        for title, names, rows in tables
    ]


def _type(each: Look) -> list[str]:
    times = (each["run_p50"], each["run_p95"], each["wait_p95"])
    return [each["name"], f"{each['completed']:,}", f"{each['failures']:,}", *map(_seconds, times)]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
