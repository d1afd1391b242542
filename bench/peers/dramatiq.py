"""Dramatiq on Redis: one process of 32 threads."""

from __future__ import annotations

import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.reporting import Tally, given, pace, report_latency, time_calls

command, url, count = given()
tally = Tally()
broker = RedisBroker(url=url)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n: int) -> None:
    tally.count += 1


@dramatiq.actor
def timed(t: float) -> None:
    report_latency(t)


def main() -> None:
    match command:
        case "single":
            time_calls(noop.send, count)
        case "bulk":
            time_calls(lambda _: [noop.send(n) for n in range(count)], 1)
        case "paced":
            pace(timed.send, count)
        case "work":
            tally.in_thread()
            dramatiq.Worker(broker, worker_threads=32).start()
            while True:
                time.sleep(60)


if __name__ == "__main__":
    main()
