"""Submitting a file of tasks: read as a stream, stored 2,000 lines at a time, all of them or none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, Final

from tasklib.cli.command import Cli
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.task_files import Read, kind_of, read_rows
from tasklib.core.task import NewTask
from tasklib.errors import StorageError, TaskLibError
from tasklib.submission import CHUNK

SHOWN: Final = 20
"""Wrong lines that are reported one by one."""


@dataclass(slots=True)
class Outcome:
    """The outcome of submitting a file."""

    submitted: int = 0
    created: int = 0
    last_line: int = 0
    """The last line that was stored, or with a dry run checked."""
    problems: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def submit_file(
    cli: Cli,
    file: str,
    *,
    name: str | None,
    options: Mapping[str, Any],
    kind: str | None,
    from_line: int,
    dry_run: bool,
) -> None:
    """Submit every line from `from_line` on; stop before the first chunk that has a wrong line."""
    with _opened(file) as stream:
        rows = read_rows(stream, kind_of(file, kind), name)
        with cli.out.progress(f"Submitting {os.path.basename(file)}", _size(stream)) as progress:
            outcome = _submit(
                cli, ((n, r) for n, r in rows if n >= from_line), options, dry_run, lambda: progress(_position(stream))
            )

    def say() -> None:
        if outcome.problems and (dry_run or not outcome.submitted):
            return
        verb = "Would submit" if dry_run else "Submitted"
        known = outcome.submitted - outcome.created
        beside = f"; {known:,} of them existed already" if known and not dry_run else ""
        cli.out.line(f"{verb} {outcome.submitted:,} tasks{beside}.")

    data = {
        "submitted": outcome.submitted,
        "created": outcome.created,
        "dry_run": dry_run,
        "problems": outcome.problems,
        "next_line": max(outcome.last_line + 1, from_line) if outcome.problems and not dry_run else None,
    }
    cli.out.answer(data, say)
    if outcome.problems:
        _complain(cli, outcome, from_line, dry_run=dry_run)


def _submit(
    cli: Cli, rows: Iterable[tuple[int, Read]], options: Mapping[str, Any], dry_run: bool, tick: Callable[[], None]
) -> Outcome:
    outcome = Outcome()
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK)):
        new, problems = _check(cli, chunk, options)
        outcome.problems += problems
        if problems and not dry_run:
            break
        if not dry_run:
            try:
                ids = cli.service.queue.submit_new(new)
            except StorageError:
                raise
            except TaskLibError as error:
                outcome.problems.append(
                    {"line": chunk[0][0], "error": f"lines {chunk[0][0]} to {chunk[-1][0]}: {error}"}
                )
                break
            outcome.created += sum(task_id.created for task_id in ids)
        outcome.submitted += len(new)
        outcome.last_line = chunk[-1][0]
        tick()
    return outcome


def _check(
    cli: Cli, chunk: Iterable[tuple[int, Read]], options: Mapping[str, Any]
) -> tuple[list[NewTask], list[dict[str, Any]]]:
    new: list[NewTask] = []
    problems: list[dict[str, Any]] = []
    for line, read in chunk:
        try:
            name, payload, own = read()
            new.append(cli.service.queue.new_by_name(name, payload, **{**options, **own}))
        except (TaskLibError, CommandFailed) as error:
            problems.append({"line": line, "error": str(error)})
    return new, problems


def _complain(cli: Cli, outcome: Outcome, from_line: int, *, dry_run: bool) -> None:
    for problem in outcome.problems[:SHOWN]:
        cli.out.error(f"line {problem['line']}: {problem['error']}")
    more = len(outcome.problems) - SHOWN
    rest = f", {more:,} more not shown" if more > 0 else ""
    if dry_run:
        raise CommandFailed(f"{len(outcome.problems):,} lines are wrong{rest}; nothing was stored")
    upto = f"everything up to line {outcome.last_line} was stored" if outcome.last_line else "nothing was stored"
    again = max(outcome.last_line + 1, from_line)
    raise CommandFailed(f"stopped{rest}: {upto}; repair the file and continue with --from-line {again}")


@contextmanager
def _opened(file: str) -> Generator[IO[bytes], None, None]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = open(file, "rb")  # noqa: SIM115 closed below; only opening it may fail here
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", Exit.USAGE) from error
    with stream:
        yield stream


def _size(stream: IO[bytes]) -> int | None:
    if not stream.seekable():
        return None
    size = stream.seek(0, 2)
    stream.seek(0)
    return size


def _position(stream: IO[bytes]) -> int:
    return stream.tell() if stream.seekable() else 0
