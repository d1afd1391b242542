"""The worker: claims tasks, runs them, and records how they ended.  One duty per module."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasklib.worker.settings import WorkerSettings
    from tasklib.worker.worker import Worker
else:

    def __getattr__(name):
        # Loaded on first use: the HTTP service shares modules of this package and runs no worker.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = import_module(f"{__name__}.{'worker' if name == 'Worker' else 'settings'}")
        value = globals()[name] = getattr(home, name)
        return value


__all__ = ["Worker", "WorkerSettings"]
