"""Makes the shared fixtures known to every test, and the same examples of Hypothesis be tried in every run."""

import gc
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

pytest_plugins = ["tests.fixtures.backends", "tests.fixtures.pooler", "tests.fixtures.virtual"]
# An example may take as long as the machine needs, and a failure is there again in the next run.
settings.register_profile("tests", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("tests")

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end: looking for what is unused among them would take a third of the collection,
    and time again and again while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share something of their file run in one process, in their order; others wherever there is room."""
    if not config.getoption("loadgroup", False):
        return  # not a process of xdist's
    for item in items:
        if isinstance(item, pytest.Function) and _shares_with_its_file(item):
            # xdist keeps together the ids that end alike. Its own marker is without effect: xdist 3.8 writes the end
            # where pytest 9.2 does not read it.
            group = f"@{item.path.stem}"
            item._id = type(item.id).parse(item.nodeid + group)
            assert item.nodeid.endswith(group), "each process makes fixtures of a file anew"


def _shares_with_its_file(item: pytest.Function) -> bool:
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return any(fixture.scope in ("module", "class") for found in fixtures for fixture in found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the histories of fault tests consisted of, and the figures that they found."""
    told = [
        f"{report.nodeid}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, text in report.user_properties
        if name in ("history", "figures")
    ]
    if told and "not chaos" not in terminalreporter.config.option.markexpr:
        terminalreporter.section("histories")
        for line in sorted(told):
            terminalreporter.write_line(line)
