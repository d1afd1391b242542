"""A program with a worker for `process_tasks`, to be killed: python -m tests.programs.process_worker CONCURRENCY."""

from __future__ import annotations

import sys

from tests.programs.process_tasks import queue

if __name__ == "__main__":
    queue.run(concurrency=int(sys.argv[1]), grace_seconds=1, poll_interval_seconds=0.1)
