"""How fast tasklib is on this database: bench."""

from __future__ import annotations

from typing import Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.options.declare import option
from tasklib.cli.show.output import Column

app = Commands("Set-up")


@app.add(creates=True)
def bench(
    cli: Cli, tasks: Annotated[int, option("N", "Tasks to drain.", min=100, max=10_000_000, show_default=True)] = 20_000
) -> None:
    """Measure submit, drain and wake-up times on this database.

    It works in a schema (or a file) of its own beside your tasks, and removes it afterwards. Other load on the
    server affects the figures: run it twice.

    Examples:
        tasklib bench --database-url postgresql://localhost/app
        tasklib bench --tasks 50000 --json
    """
    import asyncio

    from tasklib.cli.bench_run import Plan, measure

    plan = Plan(tasks)
    with cli.out.progress("Measuring", plan.steps) as on_progress:
        found = asyncio.run(measure(cli.config, plan, on_progress))
    columns = [Column("MEASURED"), *(Column(title, right=True) for title in ("RATE", "P50", "P99"))]
    cli.out.answer(found, lambda: cli.out.table(columns, [_row(name, figures) for name, figures in found.items()]))


def _row(name: str, figures: dict[str, float]) -> list[str]:
    rate = f"{figures['per_second']:,.0f}/s" if "per_second" in figures else ""
    return [name, rate, *(f"{figures[key]:.2f} ms" if key in figures else "" for key in ("p50_ms", "p99_ms"))]
