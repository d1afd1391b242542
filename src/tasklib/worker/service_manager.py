"""Notifying the service manager that started this process, such as systemd: ready, alive, stopping.

The protocol is one datagram for each state, to the socket that `NOTIFY_SOCKET` names (`Type=notify`). Without that
variable nothing is sent and nothing runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from tasklib.core.time.timing import Timing

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
LOOK_SECONDS: Final = 0.25
"""How often to look whether the service has become ready, or stops."""


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """The manager's socket, and the interval in which it expects a message."""

    address: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """The manager that this process's environment describes; without one, messages go nowhere."""
        address = environment.get("NOTIFY_SOCKET") or None
        meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "")
        watched = address is not None and meant and microseconds.isdigit() and int(microseconds) > 0
        return cls(address, int(microseconds) / 1e6 if watched else None)

    def notify(self, *words: str) -> None:
        """Send one datagram; a manager that cannot be reached changes nothing for the tasks."""
        if self.address is None:
            return
        # A name that begins with @ has no file: the kernel's names begin with a zero byte.
        target = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(words).encode(), target)


@asynccontextmanager
async def informed(
    manager: ServiceManager, timing: Timing, *, is_ready: Callable[[], bool], is_stopping: Callable[[], bool]
) -> AsyncGenerator[None]:
    """Report to the manager, while the block runs, when the service is ready, that its event loop runs, and that it
    stops."""
    if manager.address is None:
        yield
        return
    reporting = asyncio.ensure_future(_report_states(manager, timing, is_ready, is_stopping))
    try:
        yield
    finally:
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting
        manager.notify("STOPPING=1")


async def _report_states(
    manager: ServiceManager, timing: Timing, is_ready: Callable[[], bool], is_stopping: Callable[[], bool]
) -> None:
    every = None if manager.watchdog_seconds is None else manager.watchdog_seconds / 2
    next_sign, ready, stopping = timing.monotonic(), False, False
    while True:
        if not ready and is_ready():
            ready = True
            manager.notify("READY=1", f"MAINPID={os.getpid()}")
        if not stopping and is_stopping():
            stopping = True
            manager.notify("STOPPING=1")
        if every is not None and timing.monotonic() >= next_sign:
            manager.notify("WATCHDOG=1")
            next_sign = timing.monotonic() + every
        await timing.sleep(min(LOOK_SECONDS, every or LOOK_SECONDS))
