-- fragment: schedule_columns
s.name, s.plan, s.next_run_at, s.last_run_at, s.last_task_id, s.paused_at, s.paused_by, s.declared_at, s.version,
    s.created_at, s.updated_at, s.error

-- name: read_clock
-- What time it is for the database.
SELECT :now AS now;

-- name: put_schedule
-- Make or change a schedule; one declared in code is changed only by a worker that started later than the last to say so,
-- also if that one said the same as those before it.
INSERT INTO tasklib_schedules (name, plan, next_run_at, declared_at, created_at, updated_at)
VALUES (:name, json(:plan), :next_run_at, :declared_at, :now, :now)
ON CONFLICT (name) DO UPDATE
SET plan = excluded.plan, declared_at = excluded.declared_at, updated_at = excluded.updated_at, version = version + 1,
    error = NULL, held_until = NULL,
    -- The same times continue from where they are; other times start over.
    next_run_at = CASE
        WHEN json_remove(plan, '$.task', '$.kwargs', '$.options', '$.misfire', '$.overlap', '$.jitter')
            = json_remove(excluded.plan, '$.task', '$.kwargs', '$.options', '$.misfire', '$.overlap', '$.jitter')
        THEN next_run_at ELSE excluded.next_run_at
    END
WHERE (plan IS NOT excluded.plan OR excluded.declared_at > declared_at)
    AND (excluded.declared_at IS NULL OR declared_at IS NULL OR excluded.declared_at >= declared_at)
RETURNING name;

-- name: import_schedule
-- Store a schedule of another database, which goes on from its next run; one of that name stays as it is.
INSERT INTO tasklib_schedules (
    name, plan, next_run_at, last_run_at, last_task_id, paused_at, paused_by, declared_at, created_at, updated_at
)
VALUES (
    :name, json(:plan), :next_run_at, :last_run_at, :last_task_id, :paused_at, :paused_by, :declared_at, :created_at, :now
)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: get_schedule
-- One schedule by its name.
SELECT {schedule_columns} FROM tasklib_schedules AS s WHERE s.name = :name;

-- name: list_schedules
-- Every schedule, by name.
SELECT {schedule_columns} FROM tasklib_schedules AS s ORDER BY s.name;

-- name: due_schedules
-- The schedules whose tick has come.
SELECT {schedule_columns}, :now AS now
FROM tasklib_schedules AS s
WHERE s.next_run_at <= :now AND s.paused_at IS NULL AND (s.held_until IS NULL OR s.held_until <= :now)
ORDER BY s.next_run_at, s.name;

-- name: next_tick
-- Seconds until the next tick of any schedule.
SELECT (julianday(min(max(s.next_run_at, coalesce(s.held_until, '')))) - julianday(:now)) * 86400.0 AS seconds
FROM tasklib_schedules AS s WHERE s.paused_at IS NULL;

-- name: move_schedule
-- Take a tick: the worker that moves the schedule on from the version it read inserts its task in the same transaction.
UPDATE tasklib_schedules
SET next_run_at = :next_run_at, version = version + 1, error = NULL, held_until = NULL
WHERE name = :name AND version = :version
RETURNING name;

-- name: hold_schedule
-- Record why a tick could not be fired, and let no worker try for a while.
UPDATE tasklib_schedules
SET error = :error, held_until = strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :seconds))
WHERE name = :name AND version = :version;

-- name: note_run
-- Note the last task that a tick has made.
UPDATE tasklib_schedules SET last_run_at = :last_run_at, last_task_id = :task_id WHERE name = :name;

-- name: pause_schedule
-- Let no more ticks run until it is resumed.
UPDATE tasklib_schedules
SET paused_at = coalesce(paused_at, :now), paused_by = :by, version = version + 1
WHERE name = :name
RETURNING name;

-- name: resume_schedule
-- Let ticks run again, from the next one on.
UPDATE tasklib_schedules
SET paused_at = NULL, paused_by = NULL, next_run_at = :next_run_at, version = version + 1, held_until = NULL
WHERE name = :name
RETURNING name;

-- name: remove_schedule
-- Forget a schedule; tasks it has made stay.
DELETE FROM tasklib_schedules WHERE name = :name RETURNING name;

-- name: declare_tasks
-- Store what code declares for new tasks of these names, where that has changed: for any name that has had something, and
-- for others that have something now.
INSERT INTO tasklib_declarations AS d (name, options)
SELECT g.value ->> 'name', g.value -> 'options'
FROM json_each(:tasks) AS g
WHERE g.value -> 'options' <> '{}' OR EXISTS (SELECT 1 FROM tasklib_declarations AS o WHERE o.name = g.value ->> 'name')
ON CONFLICT (name) DO UPDATE SET options = excluded.options WHERE d.options <> excluded.options;

-- name: get_declaration
-- What code declares for new tasks of a name.
SELECT d.options FROM tasklib_declarations AS d WHERE d.name = :name;
