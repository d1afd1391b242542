"""What a forked child must drop: locks that none of its threads will release, and connections of its parent."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class SurvivesForks(Protocol):
    """Something that holds locks, connections or descriptors."""

    def forget_parent(self) -> None:
        """Called in a forked child before any of its code runs: reset, and end nothing of the parent's."""
        ...


_living: WeakSet[SurvivesForks] = WeakSet()


def notice_forks(subject: SurvivesForks) -> None:
    """Have `forget_parent` called in every child forked while the subject lives."""
    _living.add(subject)


def _forget_parent() -> None:
    for subject in list(_living):
        subject.forget_parent()


os.register_at_fork(after_in_child=_forget_parent)
