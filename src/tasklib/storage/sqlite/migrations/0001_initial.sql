-- Every table of the queue, with its indexes and triggers: tasks and workers, limits, schedules, the HTTP service, statistics.
-- min_compatible: 1

-- One row per task and everything about it.  Every column has a default, so that
-- INSERT INTO tasks (name, kwargs) VALUES (...) is a complete submission from any language.
-- Times are UTC text, YYYY-MM-DD HH:MM:SS.ffffff, which sorts by time and is what SQLite's date functions read and write.
CREATE TABLE tasks (
    -- Insertion order; AUTOINCREMENT because SQLite may otherwise reuse the numbers of deleted rows.
    seq                 INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    id                  TEXT    NOT NULL UNIQUE DEFAULT (
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
        || substr('89ab', 1 + (abs(random()) % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))
    ),
    name                TEXT    NOT NULL,
    state               TEXT    NOT NULL DEFAULT 'pending',
    scheduled_at        TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    started_at          TEXT,
    completed_at        TEXT,
    created_at          TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    updated_at          TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    next_retry_at       TEXT,
    locked_until        TEXT,
    expires_at          TEXT,
    cancel_requested_at TEXT,
    timeout_seconds     REAL,
    progress            REAL,
    priority            INTEGER NOT NULL DEFAULT 0,
    -- The fencing token of the last claim, counted below: never given twice, also not when an id is used again.
    version             INTEGER NOT NULL DEFAULT 0,
    attempts            INTEGER NOT NULL DEFAULT 0,
    retry_count         INTEGER NOT NULL DEFAULT 0,
    -- -1: whoever claims the task first decides, by its declaration or the settings, and writes the number here.
    max_retries         INTEGER NOT NULL DEFAULT -1,
    lost_count          INTEGER NOT NULL DEFAULT 0,
    args                TEXT    NOT NULL DEFAULT '{}',
    kwargs              TEXT    NOT NULL DEFAULT '{}',
    tags                TEXT    NOT NULL DEFAULT '{}',
    headers             TEXT,
    result              TEXT,
    history             TEXT,
    log                 TEXT,
    error               TEXT,
    progress_message    TEXT,
    worker_id           TEXT,
    finished_by         TEXT,
    unique_key          TEXT,
    concurrency_key     TEXT,
    fingerprint         TEXT,

    -- What the indexes look at: the same columns as on PostgreSQL, so that finishing a task changes no index.
    due_at   TEXT GENERATED ALWAYS AS (
        coalesce(next_retry_at, CASE WHEN state = 'pending' THEN scheduled_at END)
    ) VIRTUAL,
    live_key TEXT GENERATED ALWAYS AS (CASE WHEN completed_at IS NULL THEN unique_key END) VIRTUAL,
    trouble  TEXT GENERATED ALWAYS AS (CASE WHEN state IN ('failed', 'cancelled', 'buried') THEN state END) VIRTUAL,
    slot_key TEXT GENERATED ALWAYS AS (CASE WHEN state = 'running' THEN concurrency_key END) VIRTUAL,
    dead_at  TEXT GENERATED ALWAYS AS (CASE WHEN state IN ('failed', 'buried') THEN completed_at END) VIRTUAL,

    CONSTRAINT tasks_name_given CHECK (name <> ''),
    CONSTRAINT tasks_state_known CHECK (state IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'buried')),
    CONSTRAINT tasks_ended_when_terminal CHECK (
        (completed_at IS NULL) = (state IN ('pending', 'running') OR next_retry_at IS NOT NULL)
    ),
    CONSTRAINT tasks_retry_when_waiting CHECK (next_retry_at IS NULL OR state IN ('pending', 'failed')),
    CONSTRAINT tasks_leased_when_running CHECK (state <> 'running' OR locked_until IS NOT NULL),
    CONSTRAINT tasks_result_when_completed CHECK (result IS NULL OR state = 'completed'),
    CONSTRAINT tasks_counters_sane CHECK (
        min(version, attempts, retry_count, lost_count) >= 0 AND max_retries >= -1
        AND max(attempts, lost_count) <= 2000000000
    ),
    CONSTRAINT tasks_timeout_positive CHECK (timeout_seconds > 0 AND timeout_seconds < 1e9),
    CONSTRAINT tasks_progress_fraction CHECK (progress BETWEEN 0 AND 1),
    -- PostgreSQL's column types say this; here it must be said.  SQLite looks only at what a statement changes.
    CONSTRAINT tasks_json_valid CHECK (
        json_valid(args) AND json_valid(kwargs) AND json_valid(tags)
        AND (headers IS NULL OR json_valid(headers)) AND (result IS NULL OR json_valid(result))
        AND (history IS NULL OR json_valid(history)) AND (log IS NULL OR json_valid(log))
    ),
    CONSTRAINT tasks_json_objects CHECK (json_type(tags) = 'object' AND json_type(headers) = 'object'),
    -- As on PostgreSQL, whose indexes take no longer ones.
    CONSTRAINT tasks_keys_short CHECK (
        length(CAST(name AS BLOB)) <= 1020 AND length(CAST(unique_key AS BLOB)) <= 1500
        AND length(CAST(concurrency_key AS BLOB)) <= 1500 AND length(CAST(fingerprint AS BLOB)) <= 1200
    ),
    -- PostgreSQL keeps no text with a NUL.
    CONSTRAINT tasks_keys_text CHECK (
        (concurrency_key IS NULL OR instr(concurrency_key, char(0)) = 0)
        AND (unique_key IS NULL OR instr(unique_key, char(0)) = 0) AND instr(name, char(0)) = 0
    ),
    CONSTRAINT tasks_seq_given CHECK (seq > 0),
    CONSTRAINT tasks_id_uuid CHECK (
        length(id) = 36 AND id NOT GLOB '*[^-0-9a-f]*' AND id GLOB '????????-????-????-????-????????????'
        AND length(replace(id, '-', '')) = 32
    ),
    CONSTRAINT tasks_priority_fits CHECK (priority BETWEEN -2147483648 AND 2147483647),
    -- Times that a calendar knows, in the one form that sorts; the fraction of a second may be missing.
    CONSTRAINT tasks_scheduled_at_real CHECK (
        strftime('%Y-%m-%d %H:%M:%S', substr(scheduled_at, 1, 19), '+0 days') IS substr(scheduled_at, 1, 19)
        AND scheduled_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(scheduled_at) <= 26 AND scheduled_at NOT GLOB '*.'
        AND rtrim(substr(scheduled_at, 20), '0123456789') IN ('', '.')
    ),
    CONSTRAINT tasks_created_at_real CHECK (
        strftime('%Y-%m-%d %H:%M:%S', substr(created_at, 1, 19), '+0 days') IS substr(created_at, 1, 19)
        AND created_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(created_at) <= 26 AND created_at NOT GLOB '*.'
        AND rtrim(substr(created_at, 20), '0123456789') IN ('', '.')
    ),
    CONSTRAINT tasks_next_retry_at_real CHECK (next_retry_at IS NULL OR (
        strftime('%Y-%m-%d %H:%M:%S', substr(next_retry_at, 1, 19), '+0 days') IS substr(next_retry_at, 1, 19)
        AND next_retry_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(next_retry_at) <= 26 AND next_retry_at NOT GLOB '*.'
        AND rtrim(substr(next_retry_at, 20), '0123456789') IN ('', '.')
    )),
    CONSTRAINT tasks_expires_at_real CHECK (expires_at IS NULL OR (
        strftime('%Y-%m-%d %H:%M:%S', substr(expires_at, 1, 19), '+0 days') IS substr(expires_at, 1, 19)
        AND expires_at BETWEEN '0001-01-02' AND '9999-12-31' AND length(expires_at) <= 26 AND expires_at NOT GLOB '*.'
        AND rtrim(substr(expires_at, 20), '0123456789') IN ('', '.')
    ))
) STRICT;

-- As GENERATED ALWAYS on PostgreSQL; -1 is what SQLite shows here where no number is given, and the CHECK refuses it.
CREATE TRIGGER tasks_seq BEFORE INSERT ON tasks
WHEN NEW.seq <> -1
BEGIN
    SELECT raise(ABORT, 'seq is given by the database; leave it out');
END;

-- Tasks with a concurrency key wait apart, key by key: however many a key holds back, no claim walks over them.
CREATE INDEX tasks_claim ON tasks (name, priority DESC, due_at, seq) WHERE due_at IS NOT NULL AND concurrency_key IS NULL;
CREATE INDEX tasks_keyed ON tasks (concurrency_key, name, priority DESC, due_at, seq)
    WHERE due_at IS NOT NULL AND concurrency_key IS NOT NULL;
CREATE INDEX tasks_slots ON tasks (slot_key) WHERE slot_key IS NOT NULL;
CREATE UNIQUE INDEX tasks_live_key ON tasks (name, live_key) WHERE live_key IS NOT NULL;
-- With what counts by name and lists of one kind of failure need, so that they read this index alone.
CREATE INDEX tasks_trouble ON tasks (trouble, seq, name, due_at, fingerprint) WHERE trouble IS NOT NULL;
CREATE INDEX tasks_dead ON tasks (name, fingerprint, dead_at) WHERE dead_at IS NOT NULL;

-- The last version that a claim was given.
CREATE TABLE tasklib_versions (
    only_row INTEGER NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL DEFAULT 0
);
INSERT INTO tasklib_versions DEFAULT VALUES;

-- Worker instances and their heartbeats.
CREATE TABLE tasklib_workers (
    instance        TEXT    NOT NULL PRIMARY KEY,
    worker_id       TEXT    NOT NULL,
    host            TEXT    NOT NULL,
    pid             INTEGER NOT NULL,
    started_at      TEXT    NOT NULL,
    heartbeat_at    TEXT    NOT NULL,
    -- After this long without a heartbeat the instance counts as dead.
    timeout_seconds REAL    NOT NULL,
    concurrency     INTEGER NOT NULL,
    names           TEXT    NOT NULL DEFAULT '[]',
    info            TEXT    NOT NULL DEFAULT '{}',
    owner           TEXT
) WITHOUT ROWID;

-- What each instance holds, as on PostgreSQL; the lists are JSON.
CREATE TABLE tasklib_claims (
    instance   TEXT    NOT NULL PRIMARY KEY,
    seqs       TEXT    NOT NULL DEFAULT '[]',
    versions   TEXT    NOT NULL DEFAULT '[]',
    generation INTEGER NOT NULL DEFAULT 0
);

-- What people have switched: one row per task name, and one named '' for everything.
CREATE TABLE tasklib_controls (
    name        TEXT NOT NULL PRIMARY KEY,
    paused_at   TEXT,
    paused_by   TEXT,
    reason      TEXT,
    -- Tasks that may start in a second; the bucket below holds one second's worth, and at least one.
    rate        REAL CHECK (rate > 0),
    tokens      REAL,
    refilled_at TEXT,
    -- Tasks that may run at once.
    max_running INTEGER CHECK (max_running > 0)
) WITHOUT ROWID;

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

-- Repeated tasks: one row per schedule, moved from tick to tick by compare-and-set.
CREATE TABLE tasklib_schedules (
    name         TEXT    NOT NULL PRIMARY KEY,
    -- What a person decided, as one document: task, cron or every, tz, kwargs, misfire, overlap, jitter, options.
    plan         TEXT    NOT NULL CHECK (json_valid(plan)),
    next_run_at  TEXT,
    last_run_at  TEXT,
    last_task_id TEXT,
    paused_at    TEXT,
    paused_by    TEXT,
    -- Declared in code by a worker that started at this moment; NULL for one made at run time.
    declared_at  TEXT,
    -- Why its last tick could not be fired, and until when nobody tries again; others go on meanwhile.
    error        TEXT,
    held_until   TEXT,
    -- Grows with every change; a tick is fired only under the version it was read with.
    version      INTEGER NOT NULL DEFAULT 0,
    created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    updated_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
) STRICT, WITHOUT ROWID;

-- What the HTTP service keeps: tokens, the audit log, and the answers of requests that may be sent again.
CREATE TABLE tasklib_tokens (
    id           TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('producer', 'worker', 'viewer', 'operator', 'admin')),
    -- SHA-256 of the secret, in hexadecimal; the secret itself is nowhere.
    hash         TEXT NOT NULL UNIQUE,
    begins       TEXT NOT NULL,
    created_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    expires_at   TEXT,
    last_used_at TEXT,
    revoked_at   TEXT
);

-- Written once, never changed.
CREATE TABLE tasklib_audit (
    seq        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    actor      TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    target     TEXT,
    detail     TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(detail)),
    remote     TEXT,
    request_id TEXT
);

CREATE TABLE tasklib_idempotency (
    key         TEXT NOT NULL PRIMARY KEY,
    -- SHA-256 of the request: the same key with another request is an error.
    fingerprint TEXT NOT NULL,
    answer      TEXT CHECK (answer IS NULL OR json_valid(answer)),
    created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
) WITHOUT ROWID;
CREATE INDEX tasklib_idempotency_age ON tasklib_idempotency (created_at);

-- What was done, by minute (seconds since 1970), as on PostgreSQL.
CREATE TABLE tasklib_metrics (
    at      INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    outcome TEXT    NOT NULL,
    count   INTEGER NOT NULL,
    waits   TEXT    NOT NULL DEFAULT '{}',
    runs    TEXT    NOT NULL DEFAULT '{}',
    fresh   INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX tasklib_metrics_at ON tasklib_metrics (at);

CREATE TABLE tasklib_depths (
    at       INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    due      INTEGER NOT NULL,
    delayed  INTEGER NOT NULL,
    retrying INTEGER NOT NULL,
    running  INTEGER NOT NULL,
    PRIMARY KEY (at, name)
) WITHOUT ROWID;

-- How many rows of each name there are up to a position, as on PostgreSQL.  There is one writer, so the trigger can
-- correct the number itself, and no transaction can add a row before the position.
CREATE TABLE tasklib_totals (
    name  TEXT    NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tasklib_counted (
    only_row  INTEGER NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
    seq       INTEGER NOT NULL DEFAULT 0,
    folded_at TEXT,
    kept_at   TEXT
);
INSERT INTO tasklib_counted DEFAULT VALUES;

CREATE TRIGGER tasks_deleted AFTER DELETE ON tasks WHEN old.seq <= (SELECT seq FROM tasklib_counted)
BEGIN
    UPDATE tasklib_totals SET count = count - 1 WHERE name = old.name;
END;

-- What is known of each 10,000 positions up to that one, as on PostgreSQL.
CREATE TABLE tasklib_stretches (
    number INTEGER NOT NULL PRIMARY KEY,
    oldest TEXT    NOT NULL,
    newest TEXT    NOT NULL,
    names  TEXT
);

CREATE TRIGGER tasks_renamed AFTER UPDATE OF seq, name, created_at ON tasks WHEN (SELECT seq FROM tasklib_counted) > 0
BEGIN
    DELETE FROM tasklib_totals;
    DELETE FROM tasklib_stretches;
    UPDATE tasklib_counted SET seq = 0;
END;

-- Chores that one worker at a time does: whose turn lasts until when, and how far it has come.
CREATE TABLE tasklib_chores (
    name     TEXT    NOT NULL PRIMARY KEY,
    until    TEXT    NOT NULL,
    position INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
