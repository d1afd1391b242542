"""The table of running tasks that a worker process shares with its supervisor."""

from __future__ import annotations

import os
import subprocess
import sys

from tasklib.worker.execution.running_table import SLOTS, RunningTable


def test_what_has_begun_and_not_ended_is_read():
    table = RunningTable.create()
    table.begin(7)
    table.begin(8)
    table.end(7)

    assert table.read() == {8}
    table.close()


def test_slots_are_used_again():
    table = RunningTable.create()
    for seq in range(1, 3 * SLOTS):
        table.begin(seq)
        table.end(seq)
    table.begin(5)

    assert table.read() == {5}
    table.close()


def test_more_tasks_than_slots_are_no_error():
    table = RunningTable.create()
    for seq in range(1, SLOTS + 10):
        table.begin(seq)
    for seq in range(1, SLOTS + 10):
        table.end(seq)

    assert table.read() == set()
    table.close()


def test_what_a_process_noted_is_there_after_it_was_killed():
    table = RunningTable.create()
    os.set_inheritable(table.descriptor, True)
    program = (
        "import os, signal, sys; from tasklib.worker.execution.running_table import RunningTable\n"
        f"RunningTable({table.descriptor}).begin(42); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program], pass_fds=[table.descriptor], check=False)

    assert table.read() == {42}
    table.close()
