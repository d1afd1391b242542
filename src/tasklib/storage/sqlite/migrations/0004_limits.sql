-- Limits that hold across all workers: how many tasks start in a second, and how many run at once, by name and by key.
-- min_compatible: 1

-- Tasks that may start in a second; the bucket below holds one second's worth, and at least one.
ALTER TABLE tasklib_controls ADD COLUMN rate REAL CHECK (rate > 0);
ALTER TABLE tasklib_controls ADD COLUMN tokens REAL;
ALTER TABLE tasklib_controls ADD COLUMN refilled_at TEXT;
-- Tasks that may run at once.
ALTER TABLE tasklib_controls ADD COLUMN max_running INTEGER CHECK (max_running > 0);

-- How many tasks of a concurrency key may run at once, and under the empty key of every other; 0 is unlimited.  With a
-- name those of this name alone.  A task stands under one limit: of its name if there is one, then of its key.
CREATE TABLE tasklib_key_limits (
    name        TEXT    NOT NULL DEFAULT '',
    key         TEXT    NOT NULL,
    max_running INTEGER NOT NULL CHECK (max_running >= 0),
    PRIMARY KEY (name, key)
) WITHOUT ROWID;

-- Where a task with a concurrency key may be able to start, as on PostgreSQL.  Nobody reads while another writes, so
-- equal hints need not be kept apart.
CREATE TABLE tasklib_hints (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    key      TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    ready_at TEXT    NOT NULL,
    UNIQUE (key, name, priority, ready_at)
);
CREATE INDEX tasklib_hints_turn ON tasklib_hints (name, priority DESC, ready_at, id);

CREATE TRIGGER tasks_hint_insert AFTER INSERT ON tasks
WHEN NEW.concurrency_key IS NOT NULL AND NEW.due_at IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at)
    VALUES (NEW.concurrency_key, NEW.name, NEW.priority, NEW.due_at);
END;
CREATE TRIGGER tasks_hint_wait AFTER UPDATE ON tasks
WHEN NEW.concurrency_key IS NOT NULL AND NEW.due_at IS NOT NULL AND (
    OLD.due_at IS NOT NEW.due_at OR OLD.concurrency_key IS NOT NEW.concurrency_key OR OLD.priority <> NEW.priority
    OR OLD.name <> NEW.name
)
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at)
    VALUES (NEW.concurrency_key, NEW.name, NEW.priority, NEW.due_at);
END;
CREATE TRIGGER tasks_hint_free AFTER UPDATE ON tasks
WHEN OLD.slot_key IS NOT NULL AND NEW.slot_key IS NOT OLD.slot_key
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at) VALUES (OLD.slot_key, '', 0, '');
END;
CREATE TRIGGER tasks_hint_delete AFTER DELETE ON tasks
WHEN OLD.slot_key IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at) VALUES (OLD.slot_key, '', 0, '');
END;
