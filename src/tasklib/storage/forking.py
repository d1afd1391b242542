"""What a forked child must forget: locks that no thread of its own will release, and what belongs to its parent."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class KnowsForks(Protocol):
    """Something that holds locks, connections or descriptors."""

    def forget_parent(self) -> None:
        """Called in a forked child before any of its code runs: start anew, and end nothing of the parent's."""
        ...


_living: WeakSet[KnowsForks] = WeakSet()


def notice_forks(subject: KnowsForks) -> None:
    """Have the subject told in every child forked while it lives."""
    _living.add(subject)


def _tell() -> None:
    for subject in list(_living):
        subject.forget_parent()


os.register_at_fork(after_in_child=_tell)
