-- name: retry_tasks
-- Restart tasks from zero attempts; only those in one of the states given, and of pending ones only those that are parked.
-- What was undone can only begin from scratch.
UPDATE {schema}.tasks AS t
SET state = 'pending', attempts = 0, retry_count = 0, lost_count = 0, completed_at = NULL, next_retry_at = NULL, waits_for = NULL,
    result = NULL, error = NULL, fingerprint = NULL, progress = NULL, progress_message = NULL, cancel_requested_at = NULL,
    finished_by = NULL, expires_at = NULL, updated_at = c.now,
    marks = CASE WHEN :from_scratch::boolean THEN nullif(t.marks & ~22, 0) ELSE t.marks END,
    scheduled_at = least(t.scheduled_at, c.now)
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
    AND t.state = ANY (ARRAY(SELECT jsonb_array_elements_text(:states::jsonb)))
    AND (t.state <> 'pending' OR t.waits_for LIKE 'code%')
    AND (:from_scratch::boolean OR {can_resume})
RETURNING t.id, t.marks;

-- name: delay_tasks
-- Let tasks that were just restarted come due later, each after a delay of its own; none that waits for something else.
UPDATE {schema}.tasks AS t
SET scheduled_at = coalesce(:now::timestamptz, now()) + make_interval(secs => b.delay)
FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, delay double precision)
WHERE t.id = ANY (ARRAY(SELECT (e.value ->> 'id')::uuid FROM jsonb_array_elements(:batch::jsonb) AS e))
    AND t.id = b.id AND t.state = 'pending' AND t.waits_for IS NULL
RETURNING t.id;

-- name: wake_workers
-- Notify idle workers that tasks became due by something other than an insert.
SELECT pg_notify('{channel}', 'new')::text AS notified
WHERE EXISTS (SELECT FROM {schema}.tasklib_idle AS i WHERE i.until > now());

-- name: count_retries
-- How many matching tasks a retry would restart: of each unique key one, and none whose key another task holds.
-- plan: custom
SELECT
    count(*) FILTER (WHERE t.unique_key IS NULL OR t.live_key IS NOT NULL)
    + count(DISTINCT (t.name, t.unique_key)) FILTER (WHERE t.unique_key IS NOT NULL AND t.live_key IS NULL AND NOT EXISTS (
        SELECT FROM {schema}.tasks AS l WHERE l.name = t.name AND l.live_key = t.unique_key
    )) AS count
FROM {schema}.tasks AS t
WHERE {matches} AND t.state NOT IN ('pending', 'running') AND {can_resume};

-- fragment: can_resume
(t.marks IS NULL OR t.marks & 2 = 0 OR NOT EXISTS (
        SELECT FROM {schema}.tasklib_groups AS u WHERE u.task_id = t.id AND u.kind = 'undo'
    ))

-- name: count_live
-- How many matching tasks have not ended: a cancel would reach them, and so would another priority.
-- plan: custom
SELECT count(*) AS count FROM {schema}.tasks AS t WHERE {matches} AND t.completed_at IS NULL;

-- name: count_deletes
-- How many matching tasks a delete would remove.
-- plan: custom
SELECT count(*) AS count FROM {schema}.tasks AS t WHERE {matches} AND t.completed_at IS NOT NULL;

-- name: cancel_tasks
-- Cancel waiting tasks at once and ask the workers of running ones to stop; says which it was for each.
WITH changed AS (
    UPDATE {schema}.tasks AS t
    SET state = CASE WHEN t.state = 'running' THEN 'running' ELSE 'cancelled' END,
        completed_at = CASE WHEN t.state <> 'running' THEN c.now END,
        next_retry_at = NULL, waits_for = NULL,
        cancel_requested_at = coalesce(t.cancel_requested_at, c.now), updated_at = c.now
    FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
    WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
        AND (t.state IN ('pending', 'running') OR (t.state = 'failed' AND t.next_retry_at IS NOT NULL))
    RETURNING t.id, t.state, t.watched
)
SELECT h.id, h.state,
    CASE
        WHEN h.state = 'running' THEN pg_notify('{channel}', 'cancel')::text
        WHEN h.watched THEN pg_notify('{channel}', 'done:' || h.id)::text
    END AS notified
FROM changed AS h;

-- name: set_priorities
-- Change the priority of tasks that have not ended; one that runs keeps its attempt, and has it from the next on.
UPDATE {schema}.tasks AS t SET priority = :priority::integer, updated_at = coalesce(:now::timestamptz, now())
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND t.completed_at IS NULL
RETURNING t.id;

-- name: delete_tasks
-- Remove finished tasks.
DELETE FROM {schema}.tasks AS t
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND t.completed_at IS NOT NULL
RETURNING t.id;

-- name: pick_matching
-- The next tasks matching the filter after a position, in insertion order.
-- plan: custom
SELECT t.id, t.seq
FROM {schema}.tasks AS t
WHERE {matches} AND t.seq > :after::bigint AND t.seq <= :until::bigint
ORDER BY t.seq
LIMIT :limit::integer;

-- name: lock_matching
-- Lock tasks that were picked, without those that do not match any more.  In the order of their ids, as everybody who
-- writes many rows does: two who lock the same rows wait for each other and never both at once.
-- plan: custom
SELECT t.id, t.seq, t.state, t.name, t.unique_key
FROM {schema}.tasks AS t
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:picked::jsonb)::uuid)) AND {matches}
ORDER BY t.id
FOR NO KEY UPDATE;

-- name: last_position
-- The newest insertion, where a bulk action that starts now shall end.
SELECT coalesce(max(t.seq), 0) AS seq FROM {schema}.tasks AS t;

-- fragment: is_needed
-- A child whose workflow lives or may be resumed, and a task of a flow whose result another still waits for, are kept by
-- every clean-up.
-- Looked up one by one, so that no plan reads the whole table.
(t.marks IS NOT NULL AND (
        EXISTS (
            SELECT FROM (SELECT g.task_id FROM {schema}.tasklib_groups AS g
                WHERE g.id = t.group_id AND g.kind NOT IN ('left', 'gone') LIMIT 1) AS g
            CROSS JOIN LATERAL (
                SELECT o.id FROM {schema}.tasks AS o WHERE o.id = g.task_id AND o.state <> 'completed' LIMIT 1
            ) AS o
        )
        OR t.marks & 32 > 0 AND EXISTS (
            SELECT FROM (SELECT e.group_id FROM {schema}.tasklib_edges AS e WHERE e.task_id = t.id OFFSET 0) AS e
            CROSS JOIN LATERAL (
                SELECT g.id FROM {schema}.tasklib_groups AS g WHERE g.id = e.group_id AND g.fired_at IS NULL LIMIT 1
            ) AS g
        )
    ))

-- name: cleanup_tasks
-- Remove a bounded number of finished tasks that ended before a moment, passing over those in use.
WITH old AS MATERIALIZED (
    SELECT t.seq
    FROM {schema}.tasks AS t
    WHERE t.completed_at < :older_than::timestamptz
        AND t.state = ANY (ARRAY(SELECT jsonb_array_elements_text(:states::jsonb)))
        AND (:name::text IS NULL OR t.name = :name::text)
        AND t.seq > :after::bigint AND t.seq <= :until::bigint AND NOT {is_needed}
    ORDER BY t.seq
    LIMIT :limit::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    -- Not by address: that of a row which somebody else has just written is none that this statement sees, and a page that
    -- is short of one would look like the last.
    DELETE FROM {schema}.tasks AS t WHERE t.seq = ANY (ARRAY(SELECT o.seq FROM old AS o)) RETURNING t.seq
)
SELECT count(*) AS deleted, (SELECT max(o.seq) FROM old AS o) AS last FROM gone;
