"""Scenarios that once broke a promise, made small and kept whole: they stay the same when seeds come to mean others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.simulation.link import Weather
from tests.simulation.scenario import Act, Emission, Fault, FlowPlan, Scenario, Submission, WorkerPlan

FOLDER = Path(__file__).parent / "corpus"
PARTS: dict[str, type] = {
    "workers": WorkerPlan,
    "submissions": Submission,
    "acts": Act,
    "faults": Fault,
    "emissions": Emission,
    "flows": FlowPlan,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """A scenario, and what was wrong when it failed."""

    what: str
    scenario: Scenario


def load_all() -> dict[str, Kept]:
    """Every scenario that is kept, by its name."""
    return {path.stem: _load(path) for path in sorted(FOLDER.glob("*.json"))}


def keep(name: str, kept: Kept) -> Path:
    """Keep a scenario under a name."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(asdict(kept), indent=1) + "\n", "utf-8")
    return path


def _load(path: Path) -> Kept:
    found = json.loads(path.read_text("utf-8"))
    fields: dict[str, Any] = found["scenario"]
    for part, kind in PARTS.items():
        fields[part] = tuple(kind(**each) for each in fields.get(part, ()))
    fields["weather"] = Weather(**fields["weather"])
    fields |= {part: tuple(fields[part]) for part in ("remote_workers", "schedules")}
    return Kept(found["what"], Scenario(**fields))
