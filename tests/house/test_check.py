"""`make check` fails when one of its checks does, shows why, and knows their names."""

from __future__ import annotations

import pytest

from tools import check


def test_failing_check_fails_the_whole_and_shows_its_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "CHECKS", {"good": ["this"], "bad": ["tools.no_such_check"]})
    assert check.main([]) == 1
    output = capfd.readouterr().out
    assert "ok     good" in output
    assert "FAILED bad" in output
    assert "No module named tools.no_such_check" in output
    assert "Zen of Python" not in output


def test_only_the_checks_named_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CHECKS", {"good": ["this"], "bad": ["tools.no_such_check"]})
    assert check.main(["good"]) == 0


def test_unknown_check_is_refused() -> None:
    with pytest.raises(SystemExit, match="No such check: spelling"):
        check.main(["spelling"])
