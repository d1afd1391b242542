"""Whether this process is a child process of a worker, and what a program must not do while such a child imports it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tasklib.errors import ConfigurationError


class _State:
    child = False
    loading = False


_state = _State()


def is_child() -> bool:
    """Whether this process is a child process that a worker started for its tasks."""
    return _state.child


def become_child() -> None:
    """Record that this process is such a child."""
    _state.child = True


@contextmanager
def loading() -> Generator[None]:
    """Inside the block the program is imported only to find its tasks."""
    _state.loading = True
    try:
        yield
    finally:
        _state.loading = False


def refuse_while_loading(what: str) -> None:
    """Refuse what a script does at import, because every child would do it again."""
    if _state.loading:
        raise ConfigurationError(
            f"{what} while a child process imports this program to find its tasks; put what the program "
            "does under `if __name__ == '__main__':`, or define the tasks in a module of their own"
        )
