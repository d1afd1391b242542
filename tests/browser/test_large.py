"""A list over ten million tasks while a worker runs: the first rows are there within a second."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from statistics import quantiles

import psycopg
import pytest
from playwright.sync_api import BrowserContext, expect

from tasklib.storage.operations.statistics import keep_statistics
from tests.browser.site import Site
from tests.fixtures.backends import libpq_url

pytestmark = [pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(3600)]

ROWS = 10_000_000
PART = 500_000
ROUNDS = 5
TURNS = 5
"""Of keeping the statistics: a position is noted, then surely passed by all, then counted up to."""
VIEWS = (
    *("/tasks", "/tasks?type=old.3", "/tasks?status=completed", "/tasks?status=failed", "/tasks?status=processing"),
    *(
        "/tasks?status=cancelled&status=buried",
        "/tasks?type=old.7&status=failed",
        "/tasks?status=pending&status=delayed",
    ),
    "/tasks?status=completed&since=24h",
)
FILL = """
INSERT INTO tasks (
    name, state, created_at, scheduled_at, started_at, completed_at, attempts, version, kwargs, result, error
)
SELECT
    'old.' || n %% 20, s.state, c.at, c.at, c.at, c.at + interval '20 milliseconds', 1, 1,
    jsonb_build_object('order', n, 'to', 'someone@example.com'),
    CASE WHEN s.state = 'completed' THEN jsonb_build_object('value', n) END,
    CASE WHEN s.state = 'failed' THEN 'ValueError: order ' || n || ' has no card' END
FROM generate_series(%(first)s, %(last)s) AS n
CROSS JOIN LATERAL (SELECT now() - (%(rows)s - n) * interval '0.25 seconds' AS at) AS c
CROSS JOIN LATERAL (
    SELECT CASE n %% 199 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled' ELSE 'completed' END AS state
) AS s
"""
FIRST_ROW = """new MutationObserver((_, watch) => {
    if (!document.querySelector("tr[data-row]")) return;
    window.firstRow = performance.now();
    watch.disconnect();
}).observe(document, {subtree: true, childList: true})"""


@pytest.fixture
def site(newest_postgres_url: str) -> Iterator[Site]:
    """Ten million tasks that have ended and are counted, as if they had come one by one, and a worker that goes on."""
    with Site(newest_postgres_url) as site:
        site.queue.count()
        with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
            for first in range(1, ROWS + 1, PART):
                connection.execute(FILL, {"first": first, "last": min(first + PART - 1, ROWS), "rows": ROWS})
            connection.execute("VACUUM ANALYZE tasks")
        for _ in range(TURNS):
            site.queue.database.run(lambda: keep_statistics(fold_every=timedelta(0)))
        yield site


def test_the_first_rows_of_ten_million_are_there_within_a_second(context: BrowserContext, site: Site) -> None:
    context.add_init_script(FIRST_ROW)
    page = context.new_page()
    took: dict[str, list[float]] = {view: [] for view in VIEWS}
    over = threading.Event()
    busy = threading.Thread(target=keep_busy, args=(site, over))
    busy.start()
    try:
        for view in VIEWS * ROUNDS:
            page.goto(site.url + view)
            expect(page.locator("tr[data-row]").first).to_be_visible()
            took[view].append(float(page.evaluate("window.firstRow")) / 1000)
        page.goto(f"{site.url}/tasks?status=completed")
        for _ in range(3):
            page.get_by_role("button", name="Older").click()
            expect(page.locator("tr[data-row]").first).to_be_visible()
    finally:
        over.set()
        busy.join()
    for view, seconds in took.items():
        print(f"{view:45} {' '.join(f'{each:.2f}' for each in sorted(seconds))}")
    p95 = quantiles([each for seconds in took.values() for each in seconds], n=20)[-1]
    print(f"p95 {p95:.2f} s; {site.queue.count(name='email.send', state='completed'):,} tasks were done meanwhile")
    assert p95 <= 1, took


def keep_busy(site: Site, over: threading.Event) -> None:
    """Give the worker a hundred tasks a second, one that is delayed, and one that keeps running."""
    site.queue.enqueue("image.resize", {"picture": "large.jpg"})
    site.queue.enqueue("email.send", {"to": "later"}, delay_seconds=3600)
    while not over.wait(0.1):
        site.queue.submit_new([site.queue.new_by_name("email.send", {"to": f"user{n}"}) for n in range(10)])
