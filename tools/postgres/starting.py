"""Makes a new data directory and starts a server on it."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

from tools.postgres import account, shared
from tools.postgres.installations import Installation
from tools.postgres.server import Server

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_line_prefix": "%m [%p] %a ",
    # In the data directory instead of /dev/shm, where a killed server would leave it behind.
    "dynamic_shared_memory_type": "mmap",
}
# A test needs the answers of a commit, not its survival of a power cut.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
# Below the range from which outgoing connections take theirs, or one of them could sit on the port of a
# server that is being restarted.
PORTS = range(20000, 32000)


def start(
    installation: Installation,
    *,
    durable: bool = False,
    port: int | None = None,
    settings: dict[str, str] | None = None,
    directory: Path | None = None,
    owner: int | None = None,
    fill: Callable[[Path, Path], None] | None = None,
) -> Server:
    """Return a server that takes connections and that ends with the process `owner` (this one) at the latest.

    `directory` is made and must not exist yet; by default it is a new temporary one. Anybody on this machine
    may connect, as any user. `settings` win over ours. `fill` makes the data in that directory with the programs of a
    folder; without it a server starts with new data.
    """
    directory = account.make_directory(directory)
    # Before anything else, so that whatever happens to this process is cleaned up.
    watchdog = shared.watch(owner or os.getpid(), directory)
    try:
        bindir = shared.reachable_programs(installation, directory)
        if fill is None:
            shared.make_data(installation, bindir, directory)
        else:
            fill(bindir, directory)
        values = SETTINGS | ({} if durable else NOT_DURABLE) | (settings or {})
        options = [word for name, value in values.items() for word in ("-c", f"{name}={value}")]
        port = port or free_port()
        program = [bindir / "postgres", "-D", directory / "data", "-k", directory, "-p", str(port)]
        server = Server(installation, port, directory, [*map(str, program), *options], watchdog)
        server.restart()
    except BaseException:
        watchdog.terminate()
        watchdog.wait()
        raise
    return server


def free_port() -> int:
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop}")
