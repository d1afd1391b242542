"""Refused requests in the audit log: who tried what; bounded, because anybody can be refused."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any, Final

from fastapi import Request

from tasklib.core.time.timing import Timing
from tasklib.errors import TaskLibError
from tasklib.http.security.audit_entry import ANONYMOUS, action_of, make_entry, storable
from tasklib.service.audit import AuditLog

logger = logging.getLogger("tasklib.http")

REFUSED: Final = frozenset({401, 403, 429})
"""Not authenticated, not allowed, or too fast.  Invalid requests and unknown paths are not logged."""
ALIKE_SECONDS: Final = 600.0
"""For this long, requests that are refused alike are counted together."""
KINDS: Final = 1000
ENTRIES_PER_MINUTE: Final = 60


class Refusals:
    """Logs the first refusal of each kind, then the tenth, the hundredth and so on, a bounded number per minute."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._timing = log.timing
        self._kinds: OrderedDict[tuple[str | None, ...], tuple[float, int]] = OrderedDict()
        # Callers without a token must not use up the entries of those who have one.
        self._budgets = {True: _EntryBudget(log.timing), False: _EntryBudget(log.timing)}

    async def record(self, request: Request, status: int, why: str) -> None:
        """Log that the request was refused, if the status means that; the answer is the same if the log fails."""
        if status not in REFUSED:
            return
        entry = make_entry(request, action_of(request), {})
        alike = self._count((entry.actor, entry.remote, entry.action, entry.target, str(status)))
        if not _is_power_of_ten(alike):
            return
        budget = self._budgets[entry.actor == ANONYMOUS]
        if not budget.take():
            return
        path = storable(request.url.path)
        detail: dict[str, Any] = {"refused": why, "status": status, "method": request.method, "path": path}
        if alike > 1:
            detail["times"] = alike
        if budget.left_out:
            detail["leftOut"], budget.left_out = budget.left_out, 0
        entry = make_entry(request, entry.action, detail)
        try:
            await self._log.awrite(entry)
        except TaskLibError as error:
            logger.warning("a refused request of %s is not in the audit log: %s", entry.actor, error)

    def _count(self, kind: tuple[str | None, ...]) -> int:
        """How many refusals of this kind there were, this one included."""
        now = self._timing.monotonic()
        began, count = self._kinds.pop(kind, (now, 0))
        if now - began > ALIKE_SECONDS:
            began, count = now, 0
        self._kinds[kind] = began, count + 1
        if len(self._kinds) > KINDS:
            self._kinds.popitem(last=False)
        return count + 1


class _EntryBudget:
    """The entries that may still be written in this minute."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._minute = self._timing.monotonic()
        self._written = 0
        self.left_out = 0

    def take(self) -> bool:
        """Whether one more may be written; counts those that may not."""
        now = self._timing.monotonic()
        if now - self._minute >= 60:
            self._minute, self._written = now, 0
        if self._written >= ENTRIES_PER_MINUTE:
            self.left_out += 1
            return False
        self._written += 1
        return True


def _is_power_of_ten(number: int) -> bool:
    return set(str(number)[1:]) <= {"0"} and str(number)[0] == "1"
