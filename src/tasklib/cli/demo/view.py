"""What the demo shows: a live view on a terminal, a line per second elsewhere, and the ledger at the end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tasklib.cli.demo.ledger import Ledger
from tasklib.cli.demo.workload import Run
from tasklib.cli.show.output import Output, safe, shortened
from tasklib.cli.show.tasks import STYLES
from tasklib.core.config import redact_url
from tasklib.core.texts.error_text import summary
from tasklib.queue import TaskQueue

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tasklib.core.task import Task

STATES: Final = ("pending", "delayed", "running", "retrying", "completed", "failed", "cancelled")
BARS: Final = " ▁▂▃▄▅▆▇█"
HISTORY: Final = 60
FAILURES: Final = 5
LIVE_SECONDS: Final = 0.25
LINE_SECONDS: Final = 1.0


class View:
    """Reads the queue through its public methods now and then, and shows it."""

    def __init__(self, out: Output, queue: TaskQueue, ledger: Ledger, run: Run, address: str | None) -> None:
        self._out = out
        self._queue = queue
        self._ledger = ledger
        self._run = run
        self._address = address
        self._started = time.monotonic()
        self._counts: dict[str, int] = dict.fromkeys(STATES, 0)
        self._failures: list[Task] = []
        self._samples: deque[tuple[float, int]] = deque(maxlen=HISTORY)

    async def run(self) -> None:
        """Show until cancelled."""
        if self._out.as_json:
            await asyncio.Event().wait()
        elif self._out.is_terminal:
            await self._live()
        else:
            await self._lines()

    async def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with Live(self._picture(), console=Console(), auto_refresh=False, transient=True) as live:
            while True:
                await self._look()
                live.update(self._picture(), refresh=True)
                await asyncio.sleep(LIVE_SECONDS)

    async def _lines(self) -> None:
        self._out.line(f"Demo on {redact_url(self._queue.config.database_url)}")
        while True:
            await asyncio.sleep(LINE_SECONDS)
            await self._look()
            numbers = "  ".join(f"{state} {count}" for state, count in self._counts.items() if count)
            self._out.line(f"{self._elapsed:5.1f} s  submitted {len(self._ledger.expected)}  {numbers}")
            sys.stdout.flush()

    async def _look(self) -> None:
        by_name = (await self._queue.astats()).by_name
        own = [by_name.get(name, {}) for name in self._queue.registry.names()]
        counts = {state: sum(of_name.get(state, 0) for of_name in own) for state in STATES}
        counts["pending"] -= counts["delayed"]
        counts["failed"] -= counts["retrying"]
        self._counts = counts
        self._failures = await self._queue.alist(state=["failed", "retrying"], tags=self._run.tags, limit=FAILURES)
        self._samples.append((self._elapsed, counts["completed"]))

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _rates(self) -> list[float]:
        pairs = pairwise(self._samples)
        return [(b - a) / max(later - earlier, 1e-6) for (earlier, a), (later, b) in pairs]

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        rates = self._rates()
        rate = sum(rates[-8:]) / len(rates[-8:]) if rates else 0.0
        head = Text.assemble(
            ("tasklib demo", "bold"),
            f"  {self._elapsed:.0f} s  ",
            (f"{rate:.0f} tasks/s", "green bold"),
            "  Ctrl-C ends it",
        )
        url = redact_url(self._queue.config.database_url)
        look = Text(f"Look around: {self._address or ''}  tasklib list --database-url {url}", "dim")
        parts = [self._bars(), Text(), Text(sparkline(rates), "green"), Text(), self._failed()]
        return Group(head, look, Panel(Group(*parts), expand=False, width=78))

    def _bars(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        most = max(*self._counts.values(), 1)
        for state, count in self._counts.items():
            style = STYLES[state]
            table.add_row(
                Text(state, style), Text(f"{count:,}", justify="right"), Text("█" * round(40 * count / most), style)
            )
        return table

    def _failed(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for task in self._failures:
            reason = shortened(summary(task.error or ""), 44)
            table.add_row(
                Text(safe(task.name), "red"), Text(f"try {task.attempts}/{task.max_attempts}"), Text(reason, "dim")
            )
        return table


def show_summary(out: Output, ledger: Ledger) -> None:
    """The ledger, closed."""
    result = ledger.summary()
    notes = {
        "submitted": f"and {result['duplicates']} more not stored because their unique key was in use",
        "completed": f"{result['retried']} of them after failed attempts",
        "failed": "as intended",
        "cancelled": "while they waited or ran",
        "waiting": "for their time or their retry when the demo ended",
        "lost": "",
    }
    out.line(f"After {ledger.seconds:.1f} s:")
    for name, note in notes.items():
        if result[name] or name == "lost":
            out.line(f"{result[name]:>7,} {name:<10} {note}".rstrip())
    if ledger.changes and not ledger.balanced:
        out.line(f"You changed something {ledger.changes} times yourself, so the check cannot judge the result.")
        return
    for problem in ledger.wrong[:10]:
        out.line(f"  wrong: {problem}", "red")
    if ledger.balanced:
        out.line("Every task is there, and each has the expected outcome.", "bold green")


def sparkline(values: list[float]) -> str:
    """Bars of different heights, one per value."""
    top = max(values, default=0.0) or 1.0
    return "".join(BARS[round(max(value, 0.0) / top * (len(BARS) - 1))] for value in values)
