"""Huey on SQLite, one thread; `address` is a file, with `?fsync` for durable commits."""

from __future__ import annotations

import time

from huey import SqliteHuey

from bench.peers.reporting import Tally, given, pace, report_latency, time_calls

tally = Tally()


def main() -> None:
    command, address, count = given()
    file, _, fsync = address.partition("?")
    queue = SqliteHuey(filename=file, fsync=bool(fsync), results=False)

    @queue.task()
    def noop(n: int) -> None:
        tally.count += 1

    @queue.task()
    def timed(t: float) -> None:
        report_latency(t)

    match command:
        case "single":
            time_calls(noop, count)
        case "bulk":
            time_calls(lambda _: [noop(n) for n in range(count)], 1)
        case "paced":
            pace(timed, count)
        case "work":
            tally.in_thread()
            consumer = queue.create_consumer(workers=1, periodic=False, initial_delay=0.01, max_delay=0.01)
            consumer.start()
            while True:
                time.sleep(60)


if __name__ == "__main__":
    main()
