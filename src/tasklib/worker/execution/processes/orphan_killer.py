"""A small process that outlives its worker by a moment, to end what the worker's child processes leave behind.

A killed worker cannot clean up.  Its children notice that by themselves, but not while native code blocks them, and the
processes they started would stay.  This process has a list of the children's process groups, and kills them when its
pipe is closed.  It runs as a file of its own that imports next to nothing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False  # importing typing would cost more than the rest
if TYPE_CHECKING:
    from subprocess import Popen

CHECK_SECONDS = 0.5
"""How often it checks that its worker lives, because a fork of the worker may hold the pipe open."""
KILL_SECONDS = 5.0


class OrphanKiller:
    """The worker's side: sends the process groups to watch, and starts another killer process when this one has
    ended."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._pipe = -1
        self._process: Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """End this process group with the worker."""
        self._groups.add(group)
        if self._pipe < 0:
            self._start()
        else:
            self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        """This process group has ended."""
        self._groups.discard(group)
        if self._pipe >= 0:
            self._send(f"-{group}\n")

    def close(self) -> None:
        """End the process; process groups still watched are killed."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        process, self._process = self._process, None
        if process is None:
            return
        if self._groups:
            from subprocess import TimeoutExpired

            with suppress(TimeoutExpired):
                process.wait(KILL_SECONDS)
        process.kill()
        process.wait()

    def _start(self) -> None:
        from subprocess import DEVNULL, Popen

        reading, writing = os.pipe()
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
        try:
            self._process = Popen(command, stdin=reading, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
        finally:
            os.close(reading)
        os.set_blocking(writing, False)
        self._pipe = writing
        self._send("".join(f"+{each}\n" for each in sorted(self._groups)))

    def _send(self, text: str) -> None:
        try:
            os.write(self._pipe, text.encode())
        except OSError:  # it was killed, or stopped until its pipe was full
            groups, self._groups = self._groups, set()
            self.close()
            self._groups = groups
            if groups:
                self._start()


def main() -> None:
    """Keep the list of process groups, and kill them when the worker has ended."""
    worker = int(sys.argv[1])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A service manager may signal every process of the service: this one ends only after the worker.
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    received = b""
    while True:
        readable, _, _ = select.select([0], [], [], CHECK_SECONDS)
        if not readable:
            if os.getppid() != worker:
                break
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
