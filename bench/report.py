"""What a measurement prints: a table for people, and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table


def middle(values: Sequence[float]) -> float:
    """The median, which one disturbed run does not move."""
    return median(values)


def spread(values: Sequence[float]) -> float:
    """Half the range over the median: how far the runs lay apart."""
    return (max(values) - min(values)) / 2 / middle(values) if middle(values) else 0.0


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column names what was measured."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if Console().is_terminal else 140).print(table)


def save(path: Path | None, result: Mapping[str, object]) -> None:
    """Write the whole result, every run included, as JSON."""
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")
