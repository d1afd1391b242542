"""Runs a measurement by its name.

python -m bench --list              what there is
python -m bench                     all workloads of tasklib and its rivals; --quick takes under three minutes
python -m bench P4 P6 --rounds 3    these workloads alone
python -m bench claim --batch 200   a part by itself; exits with 1 if it misses what is promised
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from itertools import takewhile
from pkgutil import iter_modules
from typing import Protocol

from bench import parts, rivals
from bench.plan import WORKLOADS

RIVALS = [workload.key for workload in WORKLOADS]
PARTS = [module.name for module in iter_modules(parts.__path__)]


class Measurement(Protocol):
    """A module that measures something; the first line of its docstring says what."""

    __doc__: str | None

    def add_options(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, options: argparse.Namespace) -> bool | None:
        """Measure and print; False if something promised was missed."""
        ...


def main(arguments: list[str]) -> int:
    """The exit status."""
    names = list(takewhile(lambda each: not each.startswith("-"), arguments))
    options = arguments[len(names) :]
    if options == ["--list"]:
        print(*listed(), sep="\n")
        return 0
    if unknown := [name for name in names if name not in (*RIVALS, *PARTS)]:
        print(f"no such workload: {', '.join(unknown)}; python -m bench --list names them", file=sys.stderr)
        return 2
    if len(names) == 1 and names[0] in PARTS:
        return measure(names[0], part(names[0]), options)
    if any(name in PARTS for name in names):
        print("a part is measured by itself", file=sys.stderr)
        return 2
    return measure("", rivals, arguments)


def measure(name: str, module: Measurement, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {name}".strip(),
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(parser)
    if name:
        parser.add_argument("--postgres", type=int, help="major version, the newest installed if not given")
    return int(module.run(parser.parse_args(arguments)) is False)


def part(name: str) -> Measurement:
    module: Measurement = import_module(f"bench.parts.{name}")
    return module


def listed() -> list[str]:
    """A line for each workload."""
    lines = [f"{workload.key:12} {workload.title}" for workload in WORKLOADS]
    return lines + [f"{name:12} {(part(name).__doc__ or '').splitlines()[0]}" for name in PARTS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
