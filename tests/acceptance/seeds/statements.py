"""The SQL printed in seed 001, unchanged, and the same for SQLite; `docs/guides/raw-sql.md` shows both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Printed:
    """One statement: the seed's own text, and the same for SQLite."""

    postgres: str
    sqlite: str


PICKUP = Printed(
    """\
SELECT * FROM tasks
WHERE state IN ('pending', 'failed')
  AND scheduled_at <= NOW()
  AND (locked_until IS NULL OR locked_until < NOW())
ORDER BY priority DESC
LIMIT 1
FOR UPDATE;  -- PostgreSQL row lock
""",
    """\
SELECT * FROM tasks
WHERE state IN ('pending', 'failed')
  AND scheduled_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')
  AND (locked_until IS NULL OR locked_until < strftime('%Y-%m-%d %H:%M:%f', 'now'))
ORDER BY priority DESC
LIMIT 1;
""",
)

POLL = Printed(
    """\
SELECT * FROM tasks
WHERE state IN ('pending', 'failed')
  AND scheduled_at <= NOW()
  AND (locked_until IS NULL OR locked_until < NOW())
ORDER BY priority DESC, created_at ASC
LIMIT 1
FOR UPDATE;  -- Atomic lock
""",
    """\
SELECT * FROM tasks
WHERE state IN ('pending', 'failed')
  AND scheduled_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')
  AND (locked_until IS NULL OR locked_until < strftime('%Y-%m-%d %H:%M:%f', 'now'))
ORDER BY priority DESC, created_at ASC
LIMIT 1;
""",
)

CLEAN_COMPLETED = Printed(
    """\
DELETE FROM tasks
WHERE state = 'completed'
AND completed_at < NOW() - INTERVAL '30 days';
""",
    """\
DELETE FROM tasks
WHERE state = 'completed'
AND completed_at < datetime('now', '-30 days');
""",
)

CLEAN_FAILED = Printed(
    """\
DELETE FROM tasks
WHERE state = 'failed'
AND completed_at < NOW() - INTERVAL '90 days'
AND retry_count >= max_retries;
""",
    """\
DELETE FROM tasks
WHERE state = 'failed'
AND completed_at < datetime('now', '-90 days')
AND retry_count >= max_retries;
""",
)

CRON = Printed(
    """\
0 2 * * * psql -d mydb -c "DELETE FROM tasks WHERE state='completed' AND completed_at < NOW() - INTERVAL '30 days';"
""",
    """\
0 2 * * * sqlite3 tasks.db "DELETE FROM tasks WHERE state='completed' AND completed_at < datetime('now', '-30 days');"
""",
)

PENDING = Printed(
    "SELECT id, name FROM tasks WHERE state = 'pending';\n",
    "SELECT id, name FROM tasks WHERE state = 'pending';\n",
)

RECENT_FAILURES = Printed(
    "SELECT id, name, error FROM tasks WHERE state = 'failed' AND completed_at > NOW() - INTERVAL '1 hour';\n",
    "SELECT id, name, error FROM tasks WHERE state = 'failed' AND completed_at > datetime('now', '-1 hour');\n",
)

DURATIONS = Printed(
    """\
SELECT name, COUNT(*), AVG(EXTRACT(EPOCH FROM (completed_at - started_at)))
FROM tasks WHERE state = 'completed'
GROUP BY name;
""",
    """\
SELECT name, COUNT(*), AVG((julianday(completed_at) - julianday(started_at)) * 86400)
FROM tasks WHERE state = 'completed'
GROUP BY name;
""",
)

CREATE_INDEXES = """\
CREATE INDEX ix_tasks_state ON tasks (state);           -- Filter by state (pending, running, etc.)
CREATE INDEX ix_tasks_scheduled_at ON tasks (scheduled_at);  -- Find tasks ready to execute
CREATE INDEX ix_tasks_locked_until ON tasks (locked_until);  -- Detect dead workers
CREATE INDEX ix_tasks_priority ON tasks (priority);     -- Sort by priority
CREATE INDEX ix_tasks_name ON tasks (name);             -- Filter by task name
"""
"""The same on both databases."""

ALL = (PICKUP, POLL, CLEAN_COMPLETED, CLEAN_FAILED, CRON, PENDING, RECENT_FAILURES, DURATIONS)
