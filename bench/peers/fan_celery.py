"""A chord on Redis, results too: two prefork processes, and who applies it."""

from __future__ import annotations

import subprocess
import sys
import time

from celery import Celery, chord

from bench.peers.reporting import given, report

command, url, count = given()
app = Celery("fan", broker=url, backend=url)
app.conf.update(worker_prefetch_multiplier=200, worker_redirect_stdouts=False, broker_connection_retry_on_startup=True)


@app.task(name="child")
def child(n: int) -> int:
    return n


@app.task(name="after")
def after(results: list[int]) -> float:
    return time.time()


def main() -> None:
    worker = subprocess.Popen([sys.executable, "-m", "bench.peers.fan_celery", "work", url])
    try:
        chord([child.s(0)], after.s())().get(timeout=60)
        began = time.time()
        at = chord([child.s(n) for n in range(count)], after.s())().get(timeout=300)
        report(seconds=at - began)
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    if command == "work":
        sys.argv = [*sys.argv[:1]]
        options = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
        app.worker_main(["worker", "--pool=prefork", "--concurrency=2", *options])
    else:
        main()
