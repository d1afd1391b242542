"""PostgreSQL: a task is marked as a workflow by its first step, also if somebody else writes its row at that moment."""

from __future__ import annotations

import threading

import psycopg

from tasklib import TaskContext, TaskState
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import open_queue
from tests.fixtures.waiting import eventually

WHO_WAITS_FOR = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"


def test_a_first_step_is_remembered_though_the_row_is_written_meanwhile(newest_postgres_url: str):
    address = libpq_url(newest_postgres_url)
    with (
        open_queue(newest_postgres_url) as queue,
        psycopg.connect(address) as writer,
        psycopg.connect(address, autocommit=True) as observer,
    ):
        threads: list[threading.Thread] = []

        def commit_when_waited_for() -> None:
            eventually(lambda: observer.execute(WHO_WAITS_FOR, [writer.info.backend_pid]).fetchone())
            writer.commit()

        @queue.task(max_retries=0)
        def order(ctx: TaskContext) -> int:
            if not threads:
                # Held until the open wait, which is the first step, is being recorded.
                writer.execute("UPDATE tasks SET tags = tags WHERE id = %s", [ctx.task.id])
                threads.append(threading.Thread(target=commit_when_waited_for))
                threads[0].start()
            paid: int = ctx.wait("paid", int)
            return paid

        task_id = order.submit()
        queue.process_batch()
        threads[0].join(180)
        queue.plain.emit("paid", 2)
        queue.process_batch()
        ended = queue.plain.get(task_id)

        assert (ended.state, ended.result, len(threads)) == (TaskState.COMPLETED, {"value": 2}, 1), ended.error
