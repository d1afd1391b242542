"""Runs the Python blocks of one document in order, as one program, and checks what they print.

Usage: python -m tests.acceptance.run_document FILE

Each block may use what the blocks before it defined, and `await` as in a notebook.  `print(x)  # 3` must print 3; in
such a comment `…` stands for anything.  `postgresql://localhost/app` is replaced by the database in TEST_POSTGRES_URL.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import signal
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any

from tests.acceptance.documents import NOT_RUN, RUNS_UNTIL_STOPPED, Block, blocks_of
from tests.fixtures.waiting import eventually

EXAMPLE_URL = "postgresql://localhost/app"
PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


def main(path: Path) -> int:
    """0 if every block ran and printed what it says."""
    module = types.ModuleType("document")  # tasks are told apart by module and name
    sys.modules["document"] = module
    with asyncio.Runner() as runner:
        for block in blocks_of(path, "python"):
            if not block.remark.startswith(NOT_RUN):
                try:
                    run(block, vars(module), runner)
                except BaseException:  # noqa: BLE001  whatever an example raises is its failure
                    traceback.print_exc()
                    print(f"failed: {block.place}", file=sys.stderr)
                    return 1
    return 0


def run(block: Block, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    """Run one block; AssertionError if it prints something else than it says."""
    source = "\n" * (block.line - 1) + fitted(block.text)
    code = compile(source, str(block.path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), stopped_when_done(block, namespace):
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(awaited(types.FunctionType(code, namespace)))
        else:
            exec(code, namespace)
    check_output(PRINTED.findall(block.text), printed.getvalue().splitlines())


async def awaited(function: types.FunctionType) -> None:
    await function()


def fitted(text: str) -> str:
    """The text with the example's database replaced by one that exists."""
    url = os.environ.get("TEST_POSTGRES_URL", EXAMPLE_URL)
    for driver in ("", "+psycopg", "+asyncpg"):
        text = text.replace(
            EXAMPLE_URL.replace("://", f"{driver}://"),
            url.replace("://", f"{driver}://"),
        )
    return text


def check_output(expected: list[str], printed: list[str]) -> None:
    if not expected:
        return
    assert len(printed) == len(expected), f"printed {printed}, but the comments say {expected}"
    for wanted, line in zip(expected, printed, strict=True):
        pattern = ".*".join(re.escape(part) for part in wanted.split("…"))
        assert re.fullmatch(pattern, line), f"printed {line!r}, but the comment says {wanted!r}"


@contextlib.contextmanager
def stopped_when_done(block: Block, namespace: dict[str, Any]) -> Any:
    """Send SIGTERM to a block that runs a worker, once the worker has nothing left to do."""
    if block.remark != RUNS_UNTIL_STOPPED:
        yield
        return

    def stop() -> None:
        import tasklib

        queue = namespace["queue"] if "queue." in block.text else tasklib.default_queue()
        live = ["pending", "running", "retrying"]
        try:
            with tasklib.TaskQueue(queue.config) as other:
                eventually(lambda: other.workers() and not other.count(state=live))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    yield
    thread.join()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
