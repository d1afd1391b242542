-- The task table, its indexes and the side tables of a worker.
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
    name      TEXT NOT NULL PRIMARY KEY,
    paused_at TEXT,
    paused_by TEXT,
    reason    TEXT
) WITHOUT ROWID;
