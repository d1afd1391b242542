"""Every measurement is known by its name, and can say what it measures."""

from __future__ import annotations

import pytest

from bench.__main__ import PARTS, RIVALS, listed, main


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
