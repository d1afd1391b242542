"""Every measurement is known by its name, and can say what it measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import PARTS, RIVALS, listed, main
from bench.parts import compare
from bench.parts.compare import interval, is_worse, unpack
from bench.peers import reporting


def test_the_list_has_every_workload_with_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == listed()
    assert [line.split(maxsplit=1)[0] for line in lines] == [*RIVALS, *PARTS]
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


@pytest.mark.parametrize("names", [[], ["P4"], *([name] for name in PARTS)], ids=str)
def test_each_workload_explains_its_options(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*names, "--help"])
    assert "--postgres" in capsys.readouterr().out


@pytest.mark.parametrize("names", [["nonsense"], ["P4", "claim"]], ids=str)
def test_what_cannot_be_measured_is_refused(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(names) == 2
    assert capsys.readouterr().err


def test_the_median_of_ten_pairs_lies_between_the_second_and_the_ninth() -> None:
    assert interval([float(each) for each in (10, 1, 9, 2, 8, 3, 7, 4, 6, 5)]) == (2.0, 9.0)
    assert interval([1.0] * 5) is None


@pytest.mark.parametrize(
    "figure, between, worse",
    [
        ("per_second", (0.90, 0.97), True),
        ("per_second", (0.90, 1.01), False),
        ("cpu_us", (1.03, 1.2), True),
        ("cpu_us", (0.8, 0.9), False),
        ("cpu_us", None, False),
    ],
)
def test_worse_is_what_noise_cannot_explain(figure: str, between: tuple[float, float] | None, worse: bool) -> None:
    assert is_worse(figure, between) is worse


def test_the_sources_of_a_commit_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "HOME", tmp_path)
    assert (unpack("HEAD") / "src" / "tasklib" / "__init__.py").exists()
    assert (unpack("HEAD") / "bench" / "peers" / "tasklib.py").exists()
    with pytest.raises(SystemExit, match="knows no commit"):
        unpack("no-such-commit")


def test_tasks_that_end_while_the_count_is_reported_are_reported_next(monkeypatch: pytest.MonkeyPatch) -> None:
    tally, reported = reporting.Tally(), list[int]()

    def report(ran: int) -> None:
        reported.append(ran)
        tally.count = 100  # threads go on while a line is written

    monkeypatch.setattr(reporting, "report", report)
    tally.count = 90
    last = tally.report_since(0)
    tally.report_since(last)
    assert reported == [90, 100]
