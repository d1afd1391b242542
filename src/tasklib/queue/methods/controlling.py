"""Pauses and limits: stored, so that they hold on every worker and across restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tasklib.core.codec import is_storable, shown
from tasklib.core.limits import Budget, KeyLimit, Limit, Pause, check_budget, is_amount
from tasklib.definition import KEY_RULE, check_name, is_key
from tasklib.errors import ConfigurationError
from tasklib.queue.arguments import SLOWEST_RATE, check_whole, is_rate
from tasklib.queue.base import QueueBase
from tasklib.queue.change_log import if_committed, if_done, logged
from tasklib.queue.sync_async import operation
from tasklib.storage.operations.limits import budgets as spending
from tasklib.storage.operations.limits import keys, pauses
from tasklib.storage.statement import Operation


class ControlsTasks(QueueBase):
    """Pauses, limits and budgets."""

    @operation
    def pause(self, name: str | None = None, *, by: str | None = None, reason: str | None = None) -> Operation[None]:
        """Stop starting tasks, of one name or of all, on every worker; running ones finish.  Holds until `resume`.

        Examples:
            >>> queue.pause("add", by="ada", reason="the printer is on fire")
            >>> task_id = add.submit(1)
            >>> queue.process_batch()
            0
        """
        change = _compared(pauses.list_pauses, pauses.pause(_checked(name), by=by, reason=reason))
        yield from logged(change, "pause", by=by, added=if_done, type=name, reason=reason)

    apause = pause.as_async

    @operation
    def resume(self, name: str | None = None) -> Operation[bool]:
        """Start tasks again; False if nothing was paused under that name.

        Examples:
            >>> queue.pause()
            >>> queue.resume(), queue.resume()
            (True, False)
        """
        change = pauses.resume(_checked(name))
        return (yield from logged(change, "resume", added=if_done, type=name))

    aresume = resume.as_async

    @operation
    def is_paused(self, name: str | None = None) -> Operation[bool]:
        """Whether tasks of the name, or of all, are paused now.

        Examples:
            >>> queue.pause("add")
            >>> queue.is_paused("add"), queue.is_paused("divide"), queue.is_paused()
            (True, False, False)
        """
        _checked(name)
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

        Examples:
            >>> queue.set_rate_limit(5, "add", burst=2)
            >>> ids = add.submit_many({"a": number} for number in range(10))
            >>> queue.process_batch()
            2
        """
        if not is_rate(tasks_per_second):
            raise ConfigurationError(
                f"a rate limit is a number of tasks per second, at least {SLOWEST_RATE:g}, or 0 for unlimited, "
                f"got {tasks_per_second!r}; to let none start, pause"
            )
        if burst is not None and not (is_rate(burst) and burst >= 1 and tasks_per_second):
            raise ConfigurationError(f"a burst is a number of tasks, 1 or more, beside a rate limit, got {burst!r}")
        rate = float(tasks_per_second) or None
        change = _compared(_set_limits, pauses.set_rate(_checked(name), rate, burst=burst))
        yield from logged(change, "set_rate_limit", added=if_done, type=name, tasksPerSecond=rate or 0)

    aset_rate_limit = set_rate_limit.as_async

    @operation
    def get_rate_limit(self, name: str | None = None) -> Operation[float]:
        """The rate limit of one name, or the one over all; 0 if there is none.

        Examples:
            >>> queue.set_rate_limit(5, "add")
            >>> queue.get_rate_limit("add"), queue.get_rate_limit()
            (5.0, 0.0)
        """
        _checked(name)
        limits = yield from pauses.list_limits()
        return next((limit.rate for limit in limits if limit.name == name and limit.rate), 0.0)

    aget_rate_limit = get_rate_limit.as_async

    @operation
    def set_concurrency_limit(self, count: int, name: str | None = None) -> Operation[None]:
        """Let at most so many tasks, of one name or of all, run at once over all workers; 0 is unlimited.

        Examples:
            >>> queue.set_concurrency_limit(3, "add")  # at most three at once, over all workers
            >>> queue.set_concurrency_limit(0, "add")  # any number
        """
        most = check_whole("a concurrency limit", count)
        change = _compared(_set_limits, pauses.set_max_running(_checked(name), most or None))
        yield from logged(change, "set_concurrency_limit", added=if_done, type=name, count=most)

    aset_concurrency_limit = set_concurrency_limit.as_async

    @operation
    def limits(self) -> Operation[Sequence[Limit]]:
        """The limits in force across all workers.

        Examples:
            >>> queue.set_concurrency_limit(3, "add")
            >>> [(limit.name, limit.max_running) for limit in queue.limits()]
            [('add', 3)]
        """
        return (yield from pauses.list_limits())

    alimits = limits.as_async

    @operation
    def set_key_limit(self, count: int | None, key: str | None = None, name: str | None = None) -> Operation[None]:
        """Let at most so many tasks with one `concurrency_key`, or with each that has no limit of its own, run at once.

        Over all workers and names together, or with `name` of this name alone, which is then counted by itself.
        0 is unlimited, None resets to the default, which is one.

        Examples:
            >>> task_id = add.options(concurrency_key="acme").submit(1)
            >>> queue.set_key_limit(5, key="acme")  # five at once for this one
            >>> queue.set_key_limit(2)  # two at once for every other key
        """
        for what, value in (("a concurrency key", key), ("a name", name)):
            if value is not None and not is_key(value):
                raise ConfigurationError(f"{what} is {KEY_RULE}, or None for every one, got {shown(value)}")
        most = count if count is None else check_whole("a key limit", count)
        change = _compared(keys.list_key_limits, keys.set_key_limit(key, name, most))
        yield from logged(change, "set_key_limit", added=if_done, type=name, key=key, count=most)

    aset_key_limit = set_key_limit.as_async

    @operation
    def key_limits(self) -> Operation[Sequence[KeyLimit]]:
        """The limits of concurrency keys that were set.

        Examples:
            >>> queue.set_key_limit(5, key="acme")
            >>> [(limit.key, limit.max_running) for limit in queue.key_limits()]
            [('acme', 5)]
        """
        return (yield from keys.list_key_limits())

    akey_limits = key_limits.as_async

    @operation
    def set_budget(
        self,
        name: str,
        *,
        per_minute: float | None = None,
        per_second: float | None = None,
        burst: float | None = None,
    ) -> Operation[None]:
        """Let workflows spend so many tokens of a name (`ctx.spend`) over all workers; 0 or None removes the budget.

        What is not spent fills up to `burst`: what comes in that minute or second, and at least one, if it is not
        given.  A new budget is full.  Set again to the same, nothing changes; else what is left stays, and who waits
        for it looks again.

        Examples:
            >>> queue.set_budget("llm-tokens", per_minute=90_000)
            >>> @queue.task(context=True)
            ... def ask(ctx: TaskContext, question: str) -> str:
            ...     ctx.spend("llm-tokens", 800)  # waits without a slot until there are so many
            ...     return question.upper()
        """
        rate, most = budget_values(name, per_minute, per_second, burst)
        given: dict[str, Any] = {"perMinute": per_minute, "perSecond": per_second, "burst": burst} if rate else {}
        change = spending.set_budget(name, rate, most)
        action = "set_budget" if rate else "remove_budget"
        yield from logged(change, action, on=name, added=if_committed, **given)

    aset_budget = set_budget.as_async

    @operation
    def budgets(self) -> Operation[Sequence[Budget]]:
        """The budgets that were set, by name, and what is left of each.

        Examples:
            >>> queue.set_budget("calls", per_second=5, burst=20)
            >>> [(budget.name, budget.rate, budget.burst) for budget in queue.budgets()]
            [('calls', 5.0, 20.0)]
        """
        return (yield from spending.list_budgets())

    abudgets = budgets.as_async

    @operation
    def pauses(self) -> Operation[Sequence[Pause]]:
        """The pauses that hold now, with their author and reason.

        Examples:
            >>> queue.pause("add", by="ada", reason="the printer is on fire")
            >>> [(pause.name, pause.by, pause.reason) for pause in queue.pauses()]
            [('add', 'ada', 'the printer is on fire')]
        """
        return (yield from pauses.list_pauses())

    apauses = pauses.as_async


def budget_values(
    name: str, per_minute: float | None, per_second: float | None, burst: float | None
) -> tuple[float | None, float]:
    """Tokens in a second, None to remove the budget, and how many it holds; values that cannot be are an error."""
    check_budget(name)
    rate, usual = _budget_rate(per_minute, per_second)
    if burst is not None and not (is_amount(burst) and burst > 0 and rate):
        raise ConfigurationError(f"a burst is a number of tokens above 0, beside a rate, got {burst!r}")
    return rate or None, usual if burst is None else float(burst)


def _budget_rate(per_minute: float | None, per_second: float | None) -> tuple[float, float]:
    """Tokens in a second, and what a budget of that rate holds if nothing else is said."""
    if per_minute is not None and per_second is not None:
        raise ConfigurationError("a budget has per_minute= or per_second=, one of them")
    given, seconds = (per_second, 1) if per_minute is None else (per_minute, 60)
    given = 0 if given is None else given
    if not is_rate(given) or (given and not is_rate(given / seconds)):
        raise ConfigurationError(
            f"a budget is a number of tokens that come in a minute or a second, at least {SLOWEST_RATE:g} a second, "
            f"or 0 or None to remove it, got {given!r}"
        )
    return given / seconds, max(1.0, float(given))


def _checked(name: str | None) -> str | None:
    """The name of tasks, also one that only another program would give; None stands for all of them."""
    is_possible = isinstance(name, str) and name and is_storable(name)
    return name if name is None or is_possible else check_name(name)


def _compared(read: Callable[[], Operation[Any]], change: Operation[Any]) -> Operation[bool]:
    """The change; whether it has changed anything: programs set the same limits each time they start."""
    before = yield from read()
    yield from change
    return bool((yield from read()) != before)


def _set_limits() -> Operation[list[Limit]]:
    """The limits as they were set, whatever of them is used at the moment."""
    return [replace(limit, tokens=None) for limit in (yield from pauses.list_limits())]
