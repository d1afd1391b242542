"""Pauses and limits: stored, so that they hold on every worker and across restarts."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.core.codec import shown
from tasklib.core.limits import KeyLimit, Limit, Pause
from tasklib.definition import KEY_RULE, is_key
from tasklib.errors import ConfigurationError
from tasklib.queue.arguments import SLOWEST_RATE, check_whole, is_rate
from tasklib.queue.base import QueueBase
from tasklib.queue.sync_async import operation
from tasklib.storage.operations.limits import keys, pauses
from tasklib.storage.statement import Operation


class ControlsTasks(QueueBase):
    """What may start, and how much of it."""

    @operation
    def pause(self, name: str | None = None, *, by: str | None = None, reason: str | None = None) -> Operation[None]:
        """Stop starting tasks, of one name or of all, on every worker; running ones finish.  Holds until `resume`."""
        yield from pauses.pause(name, by=by, reason=reason)

    apause = pause.as_async

    @operation
    def resume(self, name: str | None = None) -> Operation[bool]:
        """Start tasks again; False if nothing was paused under that name."""
        return (yield from pauses.resume(name))

    aresume = resume.as_async

    @operation
    def is_paused(self, name: str | None = None) -> Operation[bool]:
        """Whether tasks of the name, or of all, are paused now."""
        paused = yield from pauses.list_pauses()
        return any(pause.name is None or pause.name == name for pause in paused)

    ais_paused = is_paused.as_async

    @operation
    def set_rate_limit(
        self, tasks_per_second: float, name: str | None = None, *, burst: float | None = None
    ) -> Operation[None]:
        """Let at most so many tasks, of one name or of all, start in a second over all workers; 0 is unlimited.

        What is not used fills up to `burst`: one second's worth, and at least one, if it is not given.  Every attempt
        counts.
        """
        if not is_rate(tasks_per_second):
            raise ConfigurationError(
                f"a rate limit is a number of tasks per second, at least {SLOWEST_RATE:g}, or 0 for unlimited, "
                f"got {tasks_per_second!r}; to let none start, pause"
            )
        if burst is not None and not (is_rate(burst) and burst >= 1 and tasks_per_second):
            raise ConfigurationError(f"a burst is a number of tasks, 1 or more, beside a rate limit, got {burst!r}")
        yield from pauses.set_rate(name, float(tasks_per_second) or None, burst=burst)

    aset_rate_limit = set_rate_limit.as_async

    @operation
    def get_rate_limit(self, name: str | None = None) -> Operation[float]:
        """The rate limit of one name, or the one over all; 0 if there is none."""
        limits = yield from pauses.list_limits()
        return next((limit.rate for limit in limits if limit.name == name and limit.rate), 0.0)

    aget_rate_limit = get_rate_limit.as_async

    @operation
    def set_concurrency_limit(self, count: int, name: str | None = None) -> Operation[None]:
        """Let at most so many tasks, of one name or of all, run at once over all workers; 0 is unlimited."""
        yield from pauses.set_max_running(name, check_whole("a concurrency limit", count) or None)

    aset_concurrency_limit = set_concurrency_limit.as_async

    @operation
    def limits(self) -> Operation[Sequence[Limit]]:
        """The limits in force across all workers."""
        return (yield from pauses.list_limits())

    alimits = limits.as_async

    @operation
    def set_key_limit(self, count: int | None, key: str | None = None, name: str | None = None) -> Operation[None]:
        """Let at most so many tasks with one `concurrency_key`, or with each that has no limit of its own, run at once.

        Over all workers and names together, or with `name` of this name alone, which is then counted by itself.
        0 is unlimited, None resets to the default, which is one.
        """
        for what, value in (("a concurrency key", key), ("a name", name)):
            if value is not None and not is_key(value):
                raise ConfigurationError(f"{what} is {KEY_RULE}, or None for every one, got {shown(value)}")
        yield from keys.set_key_limit(key, name, count if count is None else check_whole("a key limit", count))

    aset_key_limit = set_key_limit.as_async

    @operation
    def key_limits(self) -> Operation[Sequence[KeyLimit]]:
        """The limits of concurrency keys that were set."""
        return (yield from keys.list_key_limits())

    akey_limits = key_limits.as_async

    @operation
    def pauses(self) -> Operation[Sequence[Pause]]:
        """What is paused now, by whom and why."""
        return (yield from pauses.list_pauses())

    apauses = pauses.as_async
