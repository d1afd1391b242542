-- Repeated tasks: one row per schedule, moved from tick to tick by compare-and-set.
-- min_compatible: 1

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
