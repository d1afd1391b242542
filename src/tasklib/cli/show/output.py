"""Output: text and tables for people, one JSON document for programs, and no control characters for a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import typer

from tasklib.cli.exit_codes import CommandFailed, Exit

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Control characters, also those of one byte above ASCII; marks that reorder text; halves of surrogate pairs.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
UNBOUNDED: Final = 100_000
"""The width of output that is not a terminal: programs that read it want whole lines."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `fluid` ones are shortened first when the terminal is narrow."""

    title: str
    right: bool = False
    fluid: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a style of its own."""

    text: str
    style: str = ""


class Output:
    """Where a command prints its answer."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.answered = False
        """Whether the JSON document has been printed."""

    def answer(self, data: Any, say: Callable[[], object]) -> None:
        """Print the data as JSON, or let `say` put it in words."""
        if self.as_json:
            self.json(data)
        else:
            say()

    def answer_list(self, data: Mapping[str, Sized], show: Callable[[], object], otherwise: str) -> None:
        """Print a list as JSON, or show it; a sentence if it is empty."""
        (found,) = data.values()
        self.answer(data, show if found else lambda: self.line(otherwise))

    def json(self, data: Any) -> None:
        """Print one JSON document; times, ids and our own values as `tasklib.service.service.as_data` writes them."""
        from tasklib.service.service import as_data

        self.answered = True
        text = json.dumps(as_data(data), indent=2, ensure_ascii=False)
        # JSON leaves some control characters as they are; inside its strings this is another spelling of the same.
        sys.stdout.write(_UNSAFE.sub(lambda m: m[0] if m[0] == "\n" else f"\\u{ord(m[0]):04x}", text) + "\n")

    def failure(self, kind: str, message: str, code: Exit) -> None:
        """Print, as JSON, why the command failed."""
        self.json({"error": {"type": kind, "message": message, "exit_code": code}})

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line."""
        if style and self.is_terminal:
            self._console.print(_text(text, style), soft_wrap=True)
        else:
            sys.stdout.write(safe(text) + "\n")

    def block(self, text: str, indent: str = "  ") -> None:
        """Print a text of several lines."""
        for line in text.expandtabs(4).split("\n"):
            self.line((indent + line).rstrip())

    def note(self, text: str) -> None:
        """Print a note to stderr, beside the answer."""
        sys.stderr.write(f"note: {one_line(text)}\n")

    def error(self, text: str) -> None:
        """Print what went wrong to stderr."""
        sys.stderr.write(f"error: {one_line(text)}\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Cell]], indent: int = 0) -> None:
        """Print rows under headings."""
        from rich.padding import Padding

        table = rendered(columns, rows)
        self._console.print(Padding(table, (0, 0, 0, indent), expand=False) if indent else table)

    def confirm(self, question: str) -> bool:
        """Ask for confirmation; without a terminal to ask on, raise an error that names the option to add."""
        if not sys.stdin.isatty():
            raise CommandFailed(
                f"{question} There is no terminal to ask on: add --yes, or --dry-run to only count", Exit.USAGE
            )
        return typer.confirm(safe(question), err=True)

    @contextmanager
    def progress(
        self, what: str, total: int | None = None, *, mostly_quick: bool = False
    ) -> Generator[Callable[[int], None], None, None]:
        """A progress bar on a terminal; gives the function to call with how much of the total is done.

        With `mostly_quick` it appears with the first part that is not all: what takes one step leaves no trace.
        """
        if not self.shows_progress:
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        bars = Progress(*columns, console=Console(stderr=True), transient=True)
        bar = bars.add_task(safe(what), total=total)

        def report(done: int) -> None:
            bars.update(bar, completed=done)
            if done != total:
                bars.start()

        if not mostly_quick:
            bars.start()
        try:
            yield report
        finally:
            if bars.live.is_started:
                bars.stop()

    @cached_property
    def shows_progress(self) -> bool:
        """Whether a person would see a progress bar."""
        return sys.stderr.isatty() and not self.as_json

    @cached_property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal."""
        return sys.stdout.isatty()

    @property
    def width(self) -> int:
        """Columns there are."""
        return self._console.width

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        class Screen(Console):
            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        width = None if self.is_terminal else UNBOUNDED
        return Screen(width=width, highlight=False, markup=False, emoji=False)


def rendered(columns: Sequence[Column], rows: Iterable[Sequence[str | Cell]], title: str | None = None) -> Table:
    """Rows under headings, for a console; fluid columns are shortened, the others are as wide as their texts."""
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold"
    )
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    for position, column in enumerate(columns):
        widest = max((len(safe(row[position].text)) for row in cells), default=0)
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if column.fluid else max(len(column.title), widest),
        )
    for row in cells:
        table.add_row(*(_text(cell.text, cell.style) for cell in row))
    return table


def _text(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(safe(text), style=style)


def safe(text: str) -> str:
    """The text with every control character shown as an escape, such as \\x1b."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """The text in one line, safe for a terminal."""
    return safe(" ".join(text.split()))


def shortened(text: str, limit: int) -> str:
    """The beginning of the text, in one line."""
    line = one_line(text[: limit * 4])
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode("ascii")
