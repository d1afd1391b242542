"""The metrics of one supervisor's worker processes, in Prometheus' text format.

The supervisor adds up what its processes report, so that a counter never falls when a process is replaced, and no files
are shared between processes.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tasklib.core.insights.histogram import SMALLEST, bounds_of
from tasklib.worker.recording.metrics import OUTCOMES, STEPS

BOUNDS: Final = tuple(SMALLEST * 2.0**power for power in range(4, 24))
"""Upper bounds of the histograms, from 1.6 ms to 14 min: each is twice the one before, and exact."""
MISSING: Final = "the metrics of a worker need prometheus-client: pip install 'tasklib-queue[metrics]'"


class Totals:
    """The counts of one task name and outcome, over every process so far."""

    def __init__(self) -> None:
        self.count = 0
        self.waits: Counter[int] = Counter()
        self.runs: Counter[int] = Counter()
        self.waited = 0.0
        self.ran = 0.0

    def add(self, count: int, waits: Mapping[Any, int], runs: Mapping[Any, int], waited: float, ran: float) -> None:
        """Add the counts of one process, whose bucket numbers arrive as text because they were JSON keys."""
        self.count += count
        self.waits.update({int(bucket): number for bucket, number in waits.items()})
        self.runs.update({int(bucket): number for bucket, number in runs.items()})
        self.waited += waited
        self.ran += ran

    def values(self) -> tuple[int, dict[int, int], dict[int, int], float, float]:
        """In the form in which a process reports it."""
        return self.count, dict(self.waits), dict(self.runs), self.waited, self.ran


def add_up(counted: Iterable[Sequence[Sequence[Any]]]) -> dict[tuple[str, str], Totals]:
    """The sums over processes, by name and outcome."""
    sums: dict[tuple[str, str], Totals] = {}
    for process in counted:
        for name, outcome, *values in process:
            sums.setdefault((name, outcome), Totals()).add(*values)
    return sums


def expose(counted: Iterable[Sequence[Sequence[Any]]], processes: Sequence[Mapping[str, Any]]) -> bytes:
    """The text; ModuleNotFoundError without prometheus-client.

    `counted` is what each process has counted, those that have ended too; `processes` is the state of each slot.
    """
    client = importlib.import_module("prometheus_client")
    core = importlib.import_module("prometheus_client.core")
    every = add_up(counted)
    sums = {key: each for key, each in every.items() if key[1] not in STEPS.values()}
    attempts = core.CounterMetricFamily("tasklib_attempts", "Attempts that have ended.", labels=["type", "outcome"])
    # Series begin at zero: Prometheus sees no increase in one that begins with 1, and would miss the first failure.
    for name in sorted({name for name, _ in sums}):
        for outcome in ("completed", *OUTCOMES.values()):
            attempts.add_metric([name, outcome], sums[name, outcome].count if (name, outcome) in sums else 0)
    families = [
        attempts,
        _steps(core, {key: each.count for key, each in every.items() if key not in sums}),
        _histogram(core, "wait", "From due to start, of first attempts.", _by_name(sums, "waits", "waited")),
        _histogram(core, "run", "How long attempts ran.", _by_name(sums, "runs", "ran")),
        *(_gauge(core, name, purpose, key, processes) for name, purpose, key in GAUGES),
        _restarts(core, processes),
    ]

    class Collected:
        def collect(self) -> Iterable[Any]:
            return families

    text: bytes = client.generate_latest(Collected())
    return text


GAUGES: Final = (
    ("worker_up", "1 while the process works and its heartbeat reaches the database.", "ready"),
    ("worker_slots", "Tasks that may run at once.", "slots"),
    ("worker_slots_used", "Tasks that run now.", "slots_used"),
    ("worker_stuck_threads", "Threads that never came back from timed-out tasks.", "stuck_threads"),
    ("worker_heartbeat_age_seconds", "Since the last heartbeat that reached the database.", "heartbeat_age"),
    ("worker_resident_bytes", "Memory of the process.", "memory_bytes"),
)
"""Each gauge's description, and where its value is in a slot's state."""


def _by_name(sums: Mapping[tuple[str, str], Totals], buckets: str, total: str) -> dict[str, tuple[Counter[int], float]]:
    found: dict[str, tuple[Counter[int], float]] = {}
    for (name, _), each in sums.items():
        counts, seconds = found.get(name, (Counter[int](), 0.0))
        found[name] = counts + getattr(each, buckets), seconds + getattr(each, total)
    return found


def _histogram(core: Any, name: str, purpose: str, of: Mapping[str, tuple[Counter[int], float]]) -> Any:
    family = core.HistogramMetricFamily(f"tasklib_{name}_seconds", purpose, labels=["type"])
    for each, (counts, seconds) in sorted(of.items()):
        if counts:
            family.add_metric([each], _cumulative(counts), seconds)
    return family


def _cumulative(counts: Mapping[int, int]) -> list[tuple[str, int]]:
    """How many took at most as long as each bound; a bound is the upper end of one of our buckets."""
    upper = {bucket: bounds_of(bucket)[1] for bucket in counts}
    rows = [
        (f"{bound:.6g}", sum(counts[bucket] for bucket in counts if upper[bucket] <= bound * (1 + 1e-9)))
        for bound in BOUNDS
    ]
    return [*rows, ("+Inf", sum(counts.values()))]


def _gauge(core: Any, name: str, purpose: str, key: str, processes: Sequence[Mapping[str, Any]]) -> Any:
    family = core.GaugeMetricFamily(f"tasklib_{name}", purpose, labels=["process"])
    for number, state in enumerate(processes, 1):
        if state.get(key) is not None:
            family.add_metric([str(number)], float(state[key]))
    return family


def _steps(core: Any, counts: Mapping[tuple[str, str], int]) -> Any:
    family = core.CounterMetricFamily("tasklib_steps", "Steps that workflows recorded.", labels=["type", "state"])
    for name in sorted({name for name, _ in counts}):
        for state, what in STEPS.items():
            family.add_metric([name, state], counts.get((name, what), 0))
    return family


def _restarts(core: Any, processes: Sequence[Mapping[str, Any]]) -> Any:
    family = core.CounterMetricFamily("tasklib_worker_restarts", "Processes that replaced another.", labels=["process"])
    for number, state in enumerate(processes, 1):
        family.add_metric([str(number)], state["restarts"])
    return family
