"""Define some tasks and submit them; `python examples/worker.py` runs them.

    python examples/simple.py

The tasks wait in `examples/tasks.db`, or in the database that DATABASE_URL names.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import tasklib
from tasklib import Config, TaskContext

FILE = Path(__file__).resolve().with_name("tasks.db")
config = Config(
    database_url=os.getenv("DATABASE_URL") or f"sqlite:///{FILE}",
    base_retry_delay_seconds=0.5,  # 5 s if nobody says otherwise
)
tasklib.init(config)


@tasklib.task
def send_email(to: str, subject: str, body: str = "") -> bool:
    """A plain function: it runs in a thread of the worker."""
    print(f"  to {to}: {subject}")
    return True


@tasklib.task(max_retries=5, timeout_seconds=30)
async def fetch(url: str, ctx: TaskContext) -> int:
    """A coroutine function that fails at first: the worker tries again by itself."""
    if ctx.attempt < 3:
        raise ConnectionError(f"{url} did not answer (attempt {ctx.attempt})")
    return 200


@tasklib.task
def resize(picture: str, widths: list[int], ctx: TaskContext) -> dict[int, str]:
    """A longer one, which says how far it is."""
    made = {}
    for done, width in enumerate(widths, 1):
        time.sleep(0.1)
        made[width] = f"{picture}-{width}.jpg"
        ctx.progress(done / len(widths), f"{width} pixels")
    return made


async def main() -> None:
    """Submit tasks; each id is returned only after the task is stored for good."""
    ids = [
        await tasklib.submit_task(send_email, to="ada@example.com", subject="Welcome", tags={"batch": "example"}),
        await tasklib.submit_task(send_email, delay_seconds=2, to="ada@example.com", subject="Two seconds later"),
        await tasklib.submit_task(send_email, priority=10, to="ops@example.com", subject="This one goes first"),
        await tasklib.submit_task(fetch, url="https://example.com/"),
        await tasklib.submit_task(resize, picture="portrait", widths=[320, 640, 1280]),
    ]
    for task_id in ids:
        if task := tasklib.get_task(task_id):
            print(f"submitted {task.id} {task.name} ({task.state})")
    print("Run them: python examples/worker.py")
    await tasklib.default_queue().aclose()


if __name__ == "__main__":
    asyncio.run(main())
