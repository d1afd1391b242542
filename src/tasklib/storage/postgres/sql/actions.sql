-- name: retry_tasks
-- Start tasks anew from zero attempts; only those in one of the states given.
UPDATE {schema}.tasks AS t
SET state = 'pending', attempts = 0, retry_count = 0, lost_count = 0, completed_at = NULL, next_retry_at = NULL,
    result = NULL, error = NULL, fingerprint = NULL, progress = NULL, progress_message = NULL, cancel_requested_at = NULL,
    finished_by = NULL, expires_at = NULL, updated_at = c.now,
    scheduled_at = least(t.scheduled_at, c.now)
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
    AND t.state = ANY (ARRAY(SELECT jsonb_array_elements_text(:states::jsonb)))
RETURNING t.id;

-- name: wake_workers
-- Tell idle workers that tasks became due by something other than an insert.
SELECT pg_notify('{channel}', 'new')::text AS notified
WHERE EXISTS (SELECT FROM {schema}.tasklib_idle AS i WHERE i.until > now());

-- name: cancel_tasks
-- Cancel waiting tasks at once and ask the workers of running ones to stop; says which it was for each.
WITH changed AS (
    UPDATE {schema}.tasks AS t
    SET state = CASE WHEN t.state = 'running' THEN 'running' ELSE 'cancelled' END,
        completed_at = CASE WHEN t.state <> 'running' THEN c.now END,
        next_retry_at = NULL,
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

-- name: cleanup_tasks
-- Remove a bounded number of finished tasks that ended before a moment, passing over those in use.
WITH old AS MATERIALIZED (
    SELECT t.ctid AS tid, t.seq
    FROM {schema}.tasks AS t
    WHERE t.completed_at < :older_than::timestamptz
        AND t.state = ANY (ARRAY(SELECT jsonb_array_elements_text(:states::jsonb)))
        AND (:name::text IS NULL OR t.name = :name::text)
        AND t.seq > :after::bigint AND t.seq <= :until::bigint
    ORDER BY t.seq
    LIMIT :limit::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {schema}.tasks AS t WHERE t.ctid = ANY (ARRAY(SELECT o.tid FROM old AS o)) RETURNING t.seq
)
SELECT count(*) AS deleted, (SELECT max(o.seq) FROM old AS o) AS last FROM gone;
