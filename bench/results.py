"""What a run found: kept, shown as tables of medians and ratios, and drawn."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench.peer import RAW
from bench.plan import BEST, GOALS, WORKLOADS, Goal, Workload
from bench.report import middle, show, spread
from bench.workloads import Figures

BAR, ROW, LEFT, RIGHT = 420, 22, 190, 110
COLOURS = {"tasklib": "#2f7d4f", "tasklib on SQLite": "#2f7d4f", "raw SQL": "#b9b4a6"}


class Results:
    """Every run by workload and peer, in the order they were made."""

    def __init__(self, header: dict[str, Any], runs: dict[str, dict[str, list[Figures]]] | None = None) -> None:
        self.header = header
        self.runs = runs or {}

    def add(self, workload: str, peer: str, figures: Figures) -> None:
        """Keep one run."""
        self.runs.setdefault(workload, {}).setdefault(peer, []).append(figures)

    def values(self, workload: str, peer: str, figure: str) -> list[float]:
        """One figure over the rounds; empty if it was not measured."""
        return [run[figure] for run in self.runs.get(workload, {}).get(peer, ()) if figure in run]

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        path.write_text(json.dumps({**self.header, "runs": self.runs}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        header = json.loads(path.read_text())
        return cls(header, header.pop("runs"))


def show_results(results: Results) -> None:
    """Print who took part, a table for each workload, and how the goals stand."""
    header = results.header
    print(f"{header['when']}: {header['machine']}, PostgreSQL {header.get('postgres')}, Python {header['python']}")
    rows = [(p["name"], p["version"], p["settings"], p["lacks"]) for p in header["peers"]]
    show("Systems, each as its documentation recommends for speed", ("name", "version", "settings", "does not"), rows)
    for workload in WORKLOADS:
        if workload.key in results.runs:
            _show_workload(results, workload)
    measured = [(goal, ratio) for goal in GOALS if (ratio := goal_ratio(results, goal)) is not None]
    rows = [(g.key, g.says, f"{ratio:,.2f}", "met" if is_met(g, ratio) else "MISSED") for g, ratio in measured]
    show("Goals: the median of the rounds' own ratios", ("", "goal", "measured", ""), rows)


def goal_ratio(results: Results, goal: Goal) -> float | None:
    """The median of the ratios within each round, which the machine's swings hardly move."""
    mine = results.values(*goal.mine)
    if not mine:
        return None
    if goal.theirs is None:
        return middle(mine)
    theirs = _theirs(results, goal, *goal.theirs)
    ratios = [one / other for one, other in zip(mine, theirs, strict=False) if other]
    return middle(ratios) if ratios else None


def _theirs(results: Results, goal: Goal, workload: str, peer: str, figure: str) -> list[float]:
    if peer != BEST:
        return results.values(workload, peer, figure)
    rivals = [name for name in results.runs.get(workload, {}) if name not in (goal.mine[1], RAW.name)]
    measured = [values for name in rivals if (values := results.values(workload, name, figure))]
    best = min if goal.most is not None else max
    return best(measured, key=middle, default=[])


def is_met(goal: Goal, ratio: float) -> bool:
    """Whether the ratio is within the goal."""
    return (goal.least is None or ratio >= goal.least) and (goal.most is None or ratio <= goal.most)


def _show_workload(results: Results, workload: Workload) -> None:
    of_ours = results.values(workload.key, workload.peers[0].name, workload.figure)
    rows = []
    for name, runs in results.runs[workload.key].items():
        main = results.values(workload.key, name, workload.figure)
        ratios = [one / other for one, other in zip(of_ours, main, strict=False) if other]
        cells = [name, f"{_short(middle(main))}{workload.unit} ±{spread(main):.0%}"]
        cells.append(f"{middle(ratios):.2f}" if ratios else "")
        cells += [
            _short(middle([run[column] for run in runs])) if column in runs[0] else "" for column in _columns(workload)
        ]
        rows.append(cells)
    columns = [column.replace("_us", " µs").replace("_ms", " ms").replace("_", " ") for column in _columns(workload)]
    show(f"{workload.key}: {workload.title}", ("", workload.figure.replace("_", " "), "ours : it", *columns), rows)


def _columns(workload: Workload) -> tuple[str, ...]:
    return ("bulk_per_second", *workload.columns) if workload.key[:2] in ("P4", "P5") else workload.columns


def save_plot(results: Results, path: Path) -> None:
    """Draw the main figure of each workload as bars, a picture that needs no program but a browser."""
    parts: list[str] = []
    height = 10.0
    for workload in WORKLOADS:
        runs = results.runs.get(workload.key)
        if runs:
            height = _draw(
                parts, height, workload, {name: [r[workload.figure] for r in found] for name, found in runs.items()}
            )
    width = LEFT + BAR + RIGHT
    style = "text{font:12px system-ui,sans-serif;fill:#777}.t{font-weight:600}"
    body = "\n".join(parts)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="tasklib and its rivals, measured side by side"><style>{style}</style>\n{body}\n</svg>\n'
    )


def _draw(parts: list[str], top: float, workload: Workload, values: dict[str, list[float]]) -> float:
    better = "less is better" if workload.figure != "per_second" else "more is better"
    parts.append(f'<text class="t" x="8" y="{top + 14:.0f}">{escape(workload.title)} ({better})</text>')
    top += 24
    most = max(middle(found) for found in values.values()) or 1.0
    for name, found in values.items():
        length = middle(found) / most * BAR
        colour = COLOURS.get(name, "#7a86b8")
        shown = f"{_short(middle(found))}{workload.unit}"
        parts.append(f'<text x="{LEFT - 8}" y="{top + 12:.0f}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{LEFT}" y="{top:.0f}" width="{length:.1f}" height="{ROW - 6}" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{top + 12:.0f}">{escape(shown)}</text>')
        top += ROW
    return top + 12


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(results: Results) -> str:
    """The same tables for a document: `python -m bench.results FILE.json`."""
    lines: list[str] = []
    for workload in WORKLOADS:
        if workload.key in results.runs:
            lines += [f"**{workload.key}: {workload.title}**", "", *_markdown_table(results, workload), ""]
    lines += ["| | goal | measured | |", "|---|---|---:|---|"]
    for goal in GOALS:
        ratio = goal_ratio(results, goal)
        if ratio is not None:
            lines.append(f"| {goal.key} | {goal.says} | {ratio:,.2f} | {'met' if is_met(goal, ratio) else 'missed'} |")
    return "\n".join(lines)


def _markdown_table(results: Results, workload: Workload) -> list[str]:
    columns = [workload.figure, *_columns(workload)]
    names = [column.replace("_us", " µs").replace("_ms", " ms").replace("_", " ") for column in columns]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for name, runs in results.runs[workload.key].items():
        found = [[run[column] for run in runs if column in run] for column in columns]
        cells = [f"{_short(middle(each))}" if each else "" for each in found]
        cells[0] += f" ±{spread(found[0]):.0%}"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    for file in sys.argv[1:]:
        print(markdown(Results.load(Path(file))))
