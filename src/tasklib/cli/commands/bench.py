"""How fast tasklib is on this database: bench."""

from __future__ import annotations

from typing import Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.show.output import Column

app = typer.Typer()


@command(
    app,
    "bench",
    group="Set-up",
    examples="tasklib bench --database-url postgresql://localhost/app\ntasklib bench --tasks 50000 --json",
    creates=True,
)
def bench(
    cli: Cli,
    tasks: Annotated[int, typer.Option(min=100, max=10_000_000, metavar="N", help="Tasks to drain.")] = 20_000,
) -> None:
    """Measure submit, drain and wake-up times on this database.

    It works in a schema (or a file) of its own beside your tasks, and removes it afterwards. Your server's other work
    counts in: run it twice.
    """
    import asyncio

    from tasklib.cli.bench_run import Plan, measure

    plan = Plan(tasks)
    with cli.out.progress("Measuring", plan.steps) as told:
        found = asyncio.run(measure(cli.config, plan, told))

    def say() -> None:
        columns = [Column("MEASURED"), *(Column(title, right=True) for title in ("RATE", "P50", "P99"))]
        cli.out.table(columns, [_row(name, figures) for name, figures in found.items()])

    cli.out.answer(found, say)


def _row(name: str, figures: dict[str, float]) -> list[str]:
    rate = f"{figures['per_second']:,.0f}/s" if "per_second" in figures else ""
    return [name, rate, *(f"{figures[key]:.2f} ms" if key in figures else "" for key in ("p50_ms", "p99_ms"))]
