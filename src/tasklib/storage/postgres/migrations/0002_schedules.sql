-- Repeated tasks: one row per schedule, moved from tick to tick by compare-and-set.
-- min_compatible: 1

CREATE TABLE {schema}.tasklib_schedules (
    name         text        COLLATE "C" NOT NULL PRIMARY KEY,
    -- What a person decided, as one document: task, cron or every, tz, kwargs, misfire, overlap, jitter, options.
    plan         jsonb       NOT NULL,
    next_run_at  timestamptz,
    last_run_at  timestamptz,
    last_task_id uuid,
    paused_at    timestamptz,
    paused_by    text,
    -- Declared in code by a worker that started at this moment; NULL for one made at run time.
    declared_at  timestamptz,
    -- Why its last tick could not be fired, and until when nobody tries again; others go on meanwhile.
    error        text,
    held_until   timestamptz,
    -- Grows with every change; a tick is fired only under the version it was read with.
    version      integer     NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tasklib_schedules_times_real CHECK (
        least(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at) >= '0001-01-02 00:00:00+00'
        AND greatest(next_run_at, last_run_at, paused_at, declared_at, held_until, created_at, updated_at)
            < '9999-12-31 00:00:00+00'
    )
) WITH (fillfactor = 50);
