"""Celery on Redis: two prefork processes, results off, no gossip, mingle or heartbeat."""

from __future__ import annotations

import sys

from celery import Celery
from celery.signals import worker_process_init

from bench.peers.reporting import Tally, given, pace, report_latency, time_calls

command, url, count = given()
tally = Tally()
app = Celery("bench", broker=url)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=200,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_pool_limit=1,
)


@app.task(name="noop")
def noop(n: int) -> None:
    tally.count += 1


@app.task(name="timed")
def timed(t: float) -> None:
    report_latency(t)


@worker_process_init.connect
def begin(**_: object) -> None:
    """Each child counts its own."""
    tally.in_thread()


def main() -> None:
    match command:
        case "single":
            time_calls(noop.delay, count)
        case "bulk":
            time_calls(lambda _: [noop.delay(n) for n in range(count)], 1)
        case "paced":
            pace(timed.delay, count)
        case "work":
            options = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
            app.worker_main(["worker", "--pool=prefork", "--concurrency=2", *options])


if __name__ == "__main__":
    sys.argv = [*sys.argv[:1]]
    main()
