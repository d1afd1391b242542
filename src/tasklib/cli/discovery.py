"""Finding a user's tasks: imports the modules named, and uses the queue they define."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tasklib.cli.exit_codes import CommandFailed, Exit

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue


def find_queue(targets: Sequence[str], given_url: str | None, url: str) -> TaskQueue:
    """The queue of the modules: a TaskQueue they hold (`module:attribute` says which), or else the default one.

    `given_url` is the option, which must agree with the modules; `url` is used where the modules set none.
    """
    queues = {id(queue): (place, queue) for target in targets for place, queue in _queues_of(target)}
    if len(queues) > 1:
        places = ", ".join(place for place, _ in queues.values())
        raise CommandFailed(
            f"several queues are defined: {places}; name one of them, as in {places.split(', ')[0]}", Exit.USAGE
        )
    if queues:
        [(place, queue)] = queues.values()
    else:
        from tasklib.queue.default import default_queue_or

        place, queue = "tasklib.init()", default_queue_or(url)
    _refuse_other_database(queue, place, given_url)
    return queue


def _queues_of(target: str) -> list[tuple[str, TaskQueue]]:
    from tasklib.queue import TaskQueue

    name, _, attribute = target.partition(":")
    module = import_module(name)
    if not attribute:
        return [(f"{name}:{key}", value) for key, value in vars(module).items() if isinstance(value, TaskQueue)]
    found = getattr(module, attribute, None)
    if not isinstance(found, TaskQueue):
        what = "there is nothing of that name" if found is None else f"that is {_kind(found)}"
        raise CommandFailed(f"{target} is not a TaskQueue: {what}", Exit.USAGE)
    return [(target, found)]


def import_module(name: str) -> ModuleType:
    """The module, searched in the current folder too; an error is one line with its place."""
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise CommandFailed(f"{name} is a file; name the module instead: {dotted}", Exit.USAGE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CommandFailed(
                f"there is no module {name}: neither {here} nor the Python path has a file or folder "
                f"{error.name.replace('.', os.sep)}; start from the folder that holds it, or set PYTHONPATH",
                Exit.USAGE,
            ) from None
        raise _cannot_import(name, error) from error
    except Exception as error:
        raise _cannot_import(name, error) from error


def _cannot_import(name: str, error: Exception) -> CommandFailed:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    own = [f for f in frames if f.filename != __file__]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    return CommandFailed(f"cannot import {name}: {type(error).__name__}: {error}{place}")


def _refuse_other_database(queue: TaskQueue, place: str, given_url: str | None) -> None:
    """A queue has one database: tasks submitted by its tasks would otherwise go where no worker is."""
    from tasklib.core.config import Config, redact_url

    if given_url is None:
        return
    given, own = Config(database_url=given_url), queue.config
    if (given.database_url, given.db_schema) != (own.database_url, own.db_schema):
        raise CommandFailed(
            f"{place} works on {redact_url(own.database_url)}, but --database-url says "
            f"{redact_url(given.database_url)}; leave the option out, or let the code read DATABASE_URL",
            Exit.USAGE,
        )


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
