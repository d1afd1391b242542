"""Who is at the keyboard."""

from __future__ import annotations


def person() -> str:
    """Who is asking, as well as the machine knows: `ada@host`."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
