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
    -- Grows with every change; a tick is fired only under the version it was read with.
    version      integer     NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
