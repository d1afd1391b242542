"""Whether this process is one that a worker has started for its tasks, and what it may not do while it imports them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tasklib.errors import ConfigurationError


def is_child() -> bool:
    """Whether this process is one that a worker has started for its tasks."""
    return _state.child


def become_child() -> None:
    """Note that this process is such a child."""
    _state.child = True


@contextmanager
def loading() -> Generator[None]:
    """While inside, the program is imported to find its tasks, and not to do what it does."""
    _state.loading = True
    try:
        yield
    finally:
        _state.loading = False


def refuse_while_loading(what: str) -> None:
    """Refuse what a script does when it is imported, because every child would do it again."""
    if _state.loading:
        raise ConfigurationError(
            f"{what} while a child process imports this program to find its tasks; put what the program "
            "does under `if __name__ == '__main__':`, or define the tasks in a module of their own"
        )


class _State:
    child = False
    loading = False


_state = _State()
