"""Which database a Django connection leads to, as the URL of a queue: read from the connection, never from settings.

Tests use another database than the settings name; a service file, an environment variable or a router may decide too.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

IN_MEMORY = "sqlite:///:memory:"


def url_of(alias: str) -> str:
    """The URL of the database behind an alias; ImproperlyConfigured for one that cannot hold tasks."""
    connection = connections[alias]
    match connection.vendor:
        case "sqlite":
            return _sqlite_url(connection)
        case "postgresql":
            return _postgres_url(connection)
        case other:
            raise ImproperlyConfigured(
                f"the database {alias!r} is {other}, and tasklib stores tasks in PostgreSQL or SQLite; name another "
                'one: TASKS = {"default": {..., "OPTIONS": {"database": "jobs"}}}'
            )


def _sqlite_url(connection: Any) -> str:
    if connection.is_in_memory_db():
        return IN_MEMORY
    path = str(connection.get_connection_params()["database"])
    if path.startswith("file:"):
        path = path.removeprefix("file:").partition("?")[0]
    return f"sqlite:///{quote(path)}"


def _postgres_url(connection: Any) -> str:
    given = connection.get_connection_params()
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    options = {name: str(given[name]) for name in _libpq_names() if given.get(name) not in (None, "")}
    if role:
        options["options"] = f"{options.get('options', '')} -c role={role}".strip()
    user, password, name = options.pop("user", ""), options.pop("password", ""), options.pop("dbname", "")
    where = _authority(options)
    who = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{f'{who}@' if who else ''}{where}/{quote(name, safe='')}{query}"


def _authority(options: dict[str, str]) -> str:
    """Host and port, taken out of the options; there they stay if the host is a socket's folder or a list, whose ports
    may be a list too."""
    if not _ONE_HOST.fullmatch(options.get("host", "")):
        return ""
    host, port = options.pop("host", ""), options.pop("port", "")
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")


def _libpq_names() -> list[str]:
    """The parameters that libpq knows; Django passes more to the driver."""
    try:
        from psycopg.pq import Conninfo
    except ImportError as error:
        raise ImproperlyConfigured(
            "tasklib reaches PostgreSQL through psycopg 3: pip install 'tasklib-queue[postgres]'"
        ) from error
    return [option.keyword.decode() for option in Conninfo.get_defaults()]


_ONE_HOST: Final = re.compile(r"[\w.:-]*")
