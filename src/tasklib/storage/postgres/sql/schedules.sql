-- fragment: schedule_columns
s.name, s.plan::text AS plan, s.next_run_at, s.last_run_at, s.last_task_id, s.paused_at, s.paused_by, s.declared_at,
    s.version, s.created_at, s.updated_at, s.error

-- name: read_clock
-- What time it is for the database.
SELECT coalesce(:now::timestamptz, now()) AS now;

-- name: put_schedule
-- Make or change a schedule; one declared in code is changed only by a worker that started later than the last to say so,
-- also if that one said the same as those before it.
INSERT INTO {schema}.tasklib_schedules AS s (name, plan, next_run_at, declared_at, created_at, updated_at)
SELECT :name::text, :plan::jsonb, :next_run_at::timestamptz, :declared_at::timestamptz, c.now, c.now
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
ON CONFLICT (name) DO UPDATE
SET plan = excluded.plan, declared_at = excluded.declared_at, updated_at = excluded.updated_at, version = s.version + 1,
    error = NULL, held_until = NULL,
    -- The same times continue from where they are; other times start over.
    next_run_at = CASE
        WHEN (s.plan - '{task,kwargs,options,misfire,overlap,jitter}'::text[])
            = (excluded.plan - '{task,kwargs,options,misfire,overlap,jitter}'::text[]) THEN s.next_run_at
        ELSE excluded.next_run_at
    END
WHERE (s.plan IS DISTINCT FROM excluded.plan OR excluded.declared_at > s.declared_at)
    AND (excluded.declared_at IS NULL OR s.declared_at IS NULL OR excluded.declared_at >= s.declared_at)
RETURNING s.name, pg_notify('{channel}', 'schedules')::text AS notified;

-- name: import_schedule
-- Store a schedule of another database, which goes on from its next run; one of that name stays as it is.
INSERT INTO {schema}.tasklib_schedules AS s (
    name, plan, next_run_at, last_run_at, last_task_id, paused_at, paused_by, declared_at, created_at, updated_at
)
VALUES (
    :name::text, :plan::jsonb, :next_run_at::timestamptz, :last_run_at::timestamptz, :last_task_id::uuid,
    :paused_at::timestamptz, :paused_by::text, :declared_at::timestamptz, :created_at::timestamptz,
    coalesce(:now::timestamptz, now())
)
ON CONFLICT (name) DO NOTHING
RETURNING s.name, pg_notify('{channel}', 'schedules')::text AS notified;

-- name: get_schedule
-- One schedule by its name.
SELECT {schedule_columns} FROM {schema}.tasklib_schedules AS s WHERE s.name = :name::text;

-- name: list_schedules
-- Every schedule, by name.
SELECT {schedule_columns} FROM {schema}.tasklib_schedules AS s ORDER BY s.name;

-- name: due_schedules
-- The schedules whose tick has come.
SELECT {schedule_columns}, c.now
FROM {schema}.tasklib_schedules AS s CROSS JOIN (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
WHERE s.next_run_at <= c.now AND s.paused_at IS NULL AND (s.held_until IS NULL OR s.held_until <= c.now)
ORDER BY s.next_run_at, s.name;

-- name: next_tick
-- Seconds until the next tick of any schedule.
SELECT extract(epoch FROM min(greatest(s.next_run_at, s.held_until)) - coalesce(:now::timestamptz, now()))::float8 AS seconds
FROM {schema}.tasklib_schedules AS s WHERE s.paused_at IS NULL AND s.next_run_at IS NOT NULL;

-- name: move_schedule
-- Take a tick: the worker that moves the schedule on from the version it read inserts its task in the same transaction.
UPDATE {schema}.tasklib_schedules AS s
SET next_run_at = :next_run_at::timestamptz, version = s.version + 1, error = NULL, held_until = NULL
WHERE s.name = :name::text AND s.version = :version::integer
RETURNING s.name;

-- name: hold_schedule
-- Record why a tick could not be fired, and let no worker try for a while.
UPDATE {schema}.tasklib_schedules AS s
SET error = :error::text, held_until = coalesce(:now::timestamptz, now()) + make_interval(secs => :seconds::float8)
WHERE s.name = :name::text AND s.version = :version::integer;

-- name: note_run
-- Note the last task that a tick has made.
UPDATE {schema}.tasklib_schedules AS s
SET last_run_at = :last_run_at::timestamptz, last_task_id = :task_id::uuid
WHERE s.name = :name::text;

-- name: pause_schedule
-- Let no more ticks run until it is resumed.
UPDATE {schema}.tasklib_schedules AS s
SET paused_at = coalesce(s.paused_at, :now::timestamptz, now()), paused_by = :by::text, version = s.version + 1
WHERE s.name = :name::text
RETURNING s.name;

-- name: resume_schedule
-- Let ticks run again, from the next one on.
UPDATE {schema}.tasklib_schedules AS s
SET paused_at = NULL, paused_by = NULL, next_run_at = :next_run_at::timestamptz, version = s.version + 1, held_until = NULL
WHERE s.name = :name::text
RETURNING s.name, pg_notify('{channel}', 'schedules')::text AS notified;

-- name: remove_schedule
-- Forget a schedule; tasks it has made stay.
DELETE FROM {schema}.tasklib_schedules AS s WHERE s.name = :name::text RETURNING s.name;

-- name: declare_tasks
-- Store what code declares for new tasks of these names, where that has changed: for any name that has had something, and
-- for others that have something now.
INSERT INTO {schema}.tasklib_declarations AS d (name, options)
SELECT g.name, g.options
FROM jsonb_to_recordset(:tasks::jsonb) AS g (name text, options jsonb)
WHERE g.options <> '{}' OR EXISTS (SELECT FROM {schema}.tasklib_declarations AS o WHERE o.name = g.name)
ORDER BY g.name
ON CONFLICT (name) DO UPDATE SET options = excluded.options WHERE d.options IS DISTINCT FROM excluded.options;

-- name: get_declaration
-- What code declares for new tasks of a name.
SELECT d.options::text AS options FROM {schema}.tasklib_declarations AS d WHERE d.name = :name::text;
