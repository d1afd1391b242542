"""The logic of waiting: for a time, for an event, for a person's answer, for tokens of a budget."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from tasklib.core.calls.steps import StepOptions
from tasklib.core.codec import shown
from tasklib.core.limits import check_budget, is_amount
from tasklib.core.time.clock import require_storable
from tasklib.errors import ConfigurationError, WaitTimeout, seconds_of
from tasklib.storage.operations.limits.budgets import taken
from tasklib.storage.operations.workflows.events import check_event
from tasklib.worker.workflows.effects import Logic, Request, Suspend, WaitInSlot
from tasklib.worker.workflows.history import History
from tasklib.worker.workflows.records import Record, ValueType, digest_of
from tasklib.worker.workflows.undo import refuse_undo

SHORT_SLEEP: Final = 1.0
"""A shorter sleep keeps its slot: giving it up would take longer."""
LONGEST_SPREAD: Final = 10.0
"""The longest random delay, in seconds, of tasks that find a budget short again and again."""


class WaitLogic(History):
    """Waits of a workflow."""

    def sleep(self, options: StepOptions, seconds: float | timedelta | None, until: datetime | None) -> Logic[None]:
        """Wait for a time."""
        refuse_undo(options, "a sleep")
        if (seconds is None) == (until is None):
            raise ConfigurationError("sleep takes seconds or until=, one of them")
        wanted = None if seconds is None else seconds_of(seconds)
        moment = None if until is None else require_storable(until, "until")
        key, number = self._take_key(options.name or "sleep", options)
        return self._sleep(key, number, wanted, moment)

    def wait(
        self,
        options: StepOptions,
        events: Any,
        type: Any,
        timeout_seconds: float | None,
        ask: Any,
    ) -> Logic[Any]:
        """Wait for an event or the first of several, or for a person's answer."""
        refuse_undo(options, "a wait")
        given = [events] if isinstance(events, str) else events if isinstance(events, Sequence) else ()
        names = list(dict.fromkeys(map(check_event, given)))
        if not names or (ask is not None and len(names) > 1):
            raise ConfigurationError(f"wait takes one event or several, and a question one, got {shown(events)}")
        if ask is not None and not (isinstance(ask, str) and ask.strip()):
            raise ConfigurationError(f"ask= is the question to a person, a text, got {shown(ask)}")
        seconds = None if timeout_seconds is None else seconds_of(timeout_seconds)
        key, number = self._take_key(options.name or names[0], options)
        remedy = "wait for the type that its sender sends, or have it sent as that type"
        values = ValueType(f"event {names[0]!r}", type, None, remedy)
        question = None if ask is None else {"question": self._to_show(ask), "schema": values.schema()}
        return self._wait(key, number, names, seconds, values, question)

    def spend(self, options: StepOptions, budget: str, cost: float) -> Logic[None]:
        """Take tokens from a budget."""
        check_budget(budget)
        refuse_undo(options, "what was spent")
        if not is_amount(cost):
            raise ConfigurationError(f"the cost of ctx.spend is a number, 0 or more, got {cost!r}")
        key, number = self._take_key(options.name or budget, options)
        return self._spend(key, number, budget, float(cost))

    def _sleep(self, key: str, number: int, wanted: float | None, moment: datetime | None) -> Logic[None]:
        found = yield from self._find(key, "sleep", None)
        if found is None:
            if wanted is None:
                now = yield Request("now")
                assert moment is not None
                wanted = max(0.0, moment.timestamp() - now)
            if wanted < SHORT_SLEEP:
                yield WaitInSlot(wanted)
                return
            row = self._row(key, number, "sleep", None, 0) | {"until_in": wanted}
            yield from self._record(row, self._timing.monotonic())
            yield Suspend("sleep", key, wanted)
        left = self._left(found) if found is not None else 0.0
        if left > 0:
            if left < SHORT_SLEEP:
                yield WaitInSlot(left)
            else:
                yield Suspend("sleep", key, left)

    def _wait(
        self,
        key: str,
        number: int,
        events: Sequence[str],
        seconds: float | None,
        values: ValueType,
        question: Mapping[str, Any] | None,
    ) -> Logic[Any]:
        kind, awaited = ("wait", list(events)) if question is None else ("ask", [])
        found = yield from self._find(key, kind, None)
        if found is None:
            # Commit the open step first, then look for the event: one that is emitted meanwhile either finds the step
            # or is found here.
            row = self._row(key, number, kind, None, 0) | {"until_in": seconds, "ask": question}
            yield Request("open_wait", {"step": self._finished(row, self._timing.monotonic()), "events": awaited})
            self._remember(row)
        elif found.state != "open":
            self._require_same(found, events, question)
            return self._waited(key, found.state, found.value, values)
        elif found.ask != question or set(found.events or ()) != set(awaited):
            yield Request("renew_wait", {"key": key, "events": awaited, "question": question, "seconds": seconds})
        answer = yield Request("take", {"key": key, "events": awaited})
        if answer["state"] != "open":
            self._remember(self._row(key, number, kind, None, 0) | {"state": answer["state"], "value": answer["value"]})
            return self._waited(key, answer["state"], answer["value"], values)
        waits_for = f"answer {key}" if question is not None else f"event {' | '.join(events)}"
        yield Suspend(waits_for, key, answer["left"], fillable=True)
        raise AssertionError("a wait that was suspended goes on")

    def _require_same(self, found: Record, events: Sequence[str], question: Mapping[str, Any] | None) -> None:
        """Park the task if another event has come than the code asks for, or the answer to another question.

        Where the function has gone on since, it has had the value, and gets it again.
        """
        if found.state != "done" or found.passed:
            return
        if question is None:
            if found.note is not None and found.note not in events:
                recorded, asked = f"a wait that event {found.note!r} has ended", f"event {' | '.join(events)!r}"
                raise self._mismatch(found.key, recorded, asked)
        elif (before := (found.ask or question)["question"]) != question["question"]:
            raise self._mismatch(found.key, f"the answer to {before!r}", f"the answer to {question['question']!r}")

    @staticmethod
    def _waited(key: str, state: str, value: Any, values: ValueType) -> Any:
        if state == "failed":
            raise WaitTimeout(None, 0.0, "waiting", step=key)
        return values.read(value)

    def _spend(self, key: str, number: int, budget: str, cost: float) -> Logic[None]:
        digest = digest_of(WaitLogic.spend, (budget, cost), {})
        found = yield from self._find(key, "spend", digest)
        if found is not None and found.state == "done":
            return
        tries = 0 if found is None else found.tries
        for rested in (False, True):
            row = self._row(key, number, "spend", digest, tries + 1)
            step = self._finished(row, self._timing.monotonic())
            answer = yield Request("spend", {"step": step, "name": budget, "cost": cost})
            spent = taken(answer, budget, cost)
            self._remember(row | {"state": answer["state"]})
            if spent.taken:
                return
            if spent.seconds >= SHORT_SLEEP or rested:
                # Many may wait for the same tokens: a task that was short before comes back later, spread out from the
                # others.
                spread = min(LONGEST_SPREAD, 2.0 ** min(tries, 20) * cost / answer["rate"]) if tries else 0.0
                yield Suspend(f"budget {budget}", key, spent.seconds + random.uniform(0.0, spread))
            yield WaitInSlot(spent.seconds)
