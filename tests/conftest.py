"""Makes the shared fixtures known to every test, and the same examples of Hypothesis be tried in every run."""

import signal

import pytest
from hypothesis import settings

pytest_plugins = ["tests.fixtures.backends", "tests.fixtures.pooler", "tests.fixtures.virtual"]
# An example may take as long as the machine needs, and a failure is there again in the next run.
settings.register_profile("tests", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("tests")

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the histories of fault tests consisted of."""
    told = [
        f"{report.nodeid}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, text in report.user_properties
        if name == "history"
    ]
    if told and "not chaos" not in terminalreporter.config.option.markexpr:
        terminalreporter.section("histories")
        for line in sorted(told):
            terminalreporter.write_line(line)
