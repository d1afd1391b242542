"""PgBouncer in transaction mode before a server that is measured."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tools.postgres import Server, account
from tools.postgres.starting import free_port

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = {clients}
"""


@contextmanager
def pgbouncer(server: Server, *, sessions: int, clients: int) -> Iterator[str]:
    """The URL of the same database by way of so many sessions for so many clients."""
    if PROGRAM is None:
        sys.exit("PgBouncer is not installed (Debian, Ubuntu: apt install pgbouncer)")
    folder, port = account.make_directory(None), free_port()
    (folder / "settings").write_text(SETTINGS.format(server=server.port, port=port, sessions=sessions, clients=clients))
    try:
        with open(folder / "log", "wb") as log:
            process = account.popen([PROGRAM, str(folder / "settings")], folder, log)
        try:
            _wait_for(port, process)
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    sys.exit("PgBouncer did not start")
