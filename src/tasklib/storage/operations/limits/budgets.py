"""Budgets: tokens that workflows spend, refilled at a rate; exact over all workers, by the database's clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tasklib.core.limits import Budget
from tasklib.errors import ClaimLost, ConfigurationError
from tasklib.storage.operations.workflows.steps import notify_woken, record_steps
from tasklib.storage.statement import BEGIN, COMMIT, Operation, Statement


def set_budget(name: str, rate: float | None, burst: float | None) -> Operation[bool]:
    """Store a budget, or remove it with None; whether that changed something.  Then tasks that wait for it try again.

    The two statements commit apart: a spender locks its task and then the budget, never the other way round.
    """
    yield BEGIN
    if rate is None:
        changed = yield Statement("remove_budget", {"name": name})
    else:
        changed = yield Statement("set_budget", {"name": name, "rate": rate, "burst": burst})
    if changed:
        yield COMMIT
        yield from notify_woken((yield Statement("wake_for_budget", {"name": name})))
    return bool(changed)


def list_budgets() -> Operation[list[Budget]]:
    """All budgets, by name."""
    return [Budget(**row) for row in (yield Statement("list_budgets", {"name": None}))]


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether tokens were taken from a budget; if not, how many are missing now and when there can be enough."""

    taken: bool
    short: float = 0.0
    seconds: float = 0.0


def take(name: str, cost: float) -> Operation[Taken]:
    """Take tokens if there are enough; a budget that is not there, or never holds so many, is an error."""
    return taken((yield from _try_to_take(name, cost)), name, cost)


def taken(answer: Mapping[str, Any], name: str, cost: float) -> Taken:
    """What `spend` has answered, or the error that says what to do about a budget that can never pay that."""
    if answer["state"] in ("refused", "unknown"):
        raise _not_affordable(name, cost, answer.get("burst"))
    return Taken(answer["state"] == "done", answer.get("short", 0.0), answer.get("seconds", 0.0))


def _not_affordable(budget: str, cost: float, burst: float | None) -> ConfigurationError:
    """What to do about a budget that is not there (`burst` is None), or never holds so many tokens."""
    if burst is None:
        return ConfigurationError(
            f"there is no budget {budget!r}; set it first: queue.set_budget({budget!r}, per_minute=...)"
        )
    return ConfigurationError(
        f"budget {budget!r} holds at most {burst:,.10g} tokens, and {cost:,.10g} are asked for at once; "
        "spend less at a time, or set it with a higher burst="
    )


def spend(task_id: str, version: int, step: Mapping[str, Any], name: str, cost: float) -> Operation[dict[str, Any]]:
    """Take tokens and record the step as done, in one transaction; else how many are short and for how long.

    `state` is `done`, `open` (short; recorded so), `refused` (more than the budget ever holds) or `unknown`.
    """
    yield BEGIN
    if not (yield Statement("lock_attempt", {"id": task_id, "version": version})):
        raise ClaimLost(UUID(task_id), version)
    found = yield Statement("get_step", {"id": task_id, "key": step["key"]})
    if found and found[0]["state"] == "done":
        return {"state": "done"}  # The reply to an earlier try was lost.
    mine = {**step, "task_id": task_id, "version": version, "value": {"budget": name, "cost": cost}}
    answer = yield from _try_to_take(name, cost)
    if answer["state"] == "done":
        yield from record_steps([mine | {"state": "done", "ended": True}])
    elif answer["state"] == "open":
        yield from record_steps([mine | {"state": "open", "ended": False, "until_in": answer["seconds"]}])
    return answer


def _try_to_take(name: str, cost: float) -> Operation[dict[str, Any]]:
    """Take tokens if there are enough; the answer is that of `spend`."""
    if (yield Statement("take_from_budget", {"name": name, "cost": cost})):
        return {"state": "done"}
    rows = yield Statement("list_budgets", {"name": name})
    if not rows:
        return {"state": "unknown"}
    budget = Budget(**rows[0])
    if cost > budget.burst:
        return {"state": "refused", "burst": budget.burst}
    short = max(0.0, cost - budget.tokens)
    # A little later rather than earlier, since moments are stored in milliseconds.
    seconds = math.ceil(short / budget.rate * 1000) / 1000 + 0.001
    return {"state": "open", "seconds": seconds, "rate": budget.rate, "short": short}
