-- name: export_tasks
-- The next tasks after a position, in insertion order, as they are stored.
SELECT {columns}, t.group_id, t.fingerprint FROM {schema}.tasks AS t WHERE t.seq > :after::bigint ORDER BY t.seq LIMIT :limit::integer;

-- name: mark_copied
-- Note what a copy brings, for ever; which of it no copy has brought before.
INSERT INTO {schema}.tasklib_copied (id) SELECT jsonb_array_elements_text(:ids::jsonb)::uuid
ON CONFLICT DO NOTHING
RETURNING id;

-- name: unmark_copied
-- Forget tasks that could not be stored, because another one holds their unique key: the next copy tries again.
DELETE FROM {schema}.tasklib_copied AS c
WHERE c.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
    AND NOT EXISTS (SELECT FROM {schema}.tasks AS t WHERE t.id = c.id);

-- name: import_tasks
-- Store tasks as they stood elsewhere, in the order given; one whose id or live unique key exists already is left out.
INSERT INTO {schema}.tasks (
    id, name, state, scheduled_at, started_at, completed_at, created_at, updated_at, next_retry_at, expires_at,
    cancel_requested_at, timeout_seconds, progress, priority, version, attempts, retry_count, max_retries, lost_count,
    args, kwargs, tags, headers, result, history, log, error, progress_message, finished_by, unique_key, concurrency_key,
    waits_for, marks, group_id, fingerprint
)
SELECT
    n.id, n.name, n.state, n.scheduled_at AT TIME ZONE 'UTC', n.started_at AT TIME ZONE 'UTC',
    n.completed_at AT TIME ZONE 'UTC', n.created_at AT TIME ZONE 'UTC', n.updated_at AT TIME ZONE 'UTC',
    n.next_retry_at AT TIME ZONE 'UTC', n.expires_at AT TIME ZONE 'UTC', n.cancel_requested_at AT TIME ZONE 'UTC',
    n.timeout_seconds, n.progress, n.priority, n.version, n.attempts, n.retry_count, n.max_retries, n.lost_count,
    coalesce(n.args, '{}'), coalesce(n.kwargs, 'null'), coalesce(n.tags, '{}'), n.headers, n.result, n.history, n.log,
    n.error, n.progress_message, n.finished_by, n.unique_key, n.concurrency_key, n.waits_for, n.marks, n.group_id,
    n.fingerprint
FROM jsonb_to_recordset(:batch::jsonb) AS n (
    id uuid, name text, state text, scheduled_at timestamp, started_at timestamp, completed_at timestamp,
    created_at timestamp, updated_at timestamp, next_retry_at timestamp, expires_at timestamp,
    cancel_requested_at timestamp, timeout_seconds double precision, progress double precision, priority integer,
    version bigint, attempts integer, retry_count integer, max_retries integer, lost_count integer, args jsonb,
    kwargs jsonb, tags jsonb, headers jsonb, result jsonb, history jsonb, log jsonb, error text, progress_message text,
    finished_by text, unique_key text, concurrency_key text, waits_for text, marks smallint, group_id uuid,
    fingerprint text
)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: export_steps
-- What tasks have recorded, as it is stored.
SELECT s.task_id, s.key, s.number, s.kind, s.state, s.version, s.digest, s.value::text AS value, s.error::text AS error,
    s.until, s.tries, s.note, s.ask::text AS ask, s.undo::text AS undo, s.started_at, s.ended_at
FROM {schema}.tasklib_steps AS s
WHERE s.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid))
ORDER BY s.task_id, s.number, s.key;

-- name: import_steps
-- Store what tasks have recorded elsewhere.
INSERT INTO {schema}.tasklib_steps (
    task_id, key, number, kind, state, version, digest, value, error, until, tries, note, ask, undo, started_at, ended_at
)
SELECT b.task_id, b.key, b.number, b.kind, b.state, b.version, b.digest, b.value::jsonb, b.error::jsonb,
    b.until AT TIME ZONE 'UTC', b.tries, b.note, b.ask::jsonb, b.undo::jsonb, b.started_at AT TIME ZONE 'UTC',
    b.ended_at AT TIME ZONE 'UTC'
FROM jsonb_to_recordset(:batch::jsonb) AS b (
    task_id uuid, key text, number integer, kind text, state text, version bigint, digest text, value text, error text,
    until timestamp, tries integer, note text, ask text, undo text, started_at timestamp, ended_at timestamp
)
ON CONFLICT DO NOTHING;

-- name: export_waits
-- Which events open steps of tasks wait for.
SELECT w.event, w.task_id, w.key
FROM {schema}.tasklib_waits AS w
WHERE w.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid));

-- name: import_waits
-- Store which events open steps wait for.
INSERT INTO {schema}.tasklib_waits (event, task_id, key)
SELECT b.event, b.task_id, b.key FROM jsonb_to_recordset(:batch::jsonb) AS b (event text, task_id uuid, key text)
ON CONFLICT DO NOTHING;

-- name: export_messages
-- Messages to tasks that no step has taken, the oldest first.
SELECT e.name, e.task_id, e.payload::text AS payload, e.sender, e.created_at
FROM {schema}.tasklib_events AS e
WHERE e.task_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND e.taken_by IS NULL
ORDER BY e.id;

-- name: export_facts
-- The next facts after a position.
SELECT e.id, e.name, e.task_id, e.payload::text AS payload, e.sender, e.created_at
FROM {schema}.tasklib_events AS e
WHERE e.id > :after::bigint AND e.task_id IS NULL
ORDER BY e.id
LIMIT :limit::integer;

-- name: import_events
-- Store events of another database, to be delivered; a fact that is known already stays as it is.
INSERT INTO {schema}.tasklib_events (name, task_id, payload, sender, created_at)
SELECT b.data ->> 'name', (b.data ->> 'task_id')::uuid, (b.data ->> 'payload')::jsonb, b.data ->> 'sender',
    (b.data ->> 'created_at')::timestamp AT TIME ZONE 'UTC'
FROM jsonb_array_elements(:batch::jsonb) WITH ORDINALITY AS b (data, place)
ORDER BY b.place
ON CONFLICT DO NOTHING;

-- name: redeliver_facts
-- Have facts delivered once more, for steps that have come to wait for them from another database.
UPDATE {schema}.tasklib_events AS e SET delivered_at = NULL
WHERE e.task_id IS NULL AND e.name = ANY (ARRAY(SELECT jsonb_array_elements_text(:names::jsonb)));

-- name: export_groups
-- The next groups after an id: with how many of their members have ended and were deleted, because no copied member shows that.
SELECT g.id, g.task_id, g.key, g.kind, g.run_if, g.total, g.sealed, g.max_failures, g.last_digest,
    g.fired_at, g.ended + m.ended AS ended, g.failed + m.failed AS failed, g.cancelled + m.cancelled AS cancelled,
    g.stopped_at IS NOT NULL
    OR g.kind IN ('run', 'map', 'flow') AND EXISTS (
        SELECT FROM {schema}.tasklib_tallies AS o WHERE o.group_id IS NULL AND o.task_id = g.task_id
    ) AS stopped
FROM {schema}.tasklib_groups AS g
CROSS JOIN LATERAL (
    SELECT coalesce(sum(u.ended), 0)::bigint AS ended, coalesce(sum(u.failed), 0)::bigint AS failed,
        coalesce(sum(u.cancelled), 0)::bigint AS cancelled
    FROM (
        SELECT t.ended, t.failed, t.cancelled FROM {schema}.tasklib_tallies AS t WHERE t.group_id = g.id
        UNION ALL
        SELECT -1, -(t.state IN ('failed', 'buried'))::integer, -(t.state = 'cancelled')::integer
        FROM {schema}.tasks AS t WHERE {of_group} AND t.completed_at IS NOT NULL
        UNION ALL
        SELECT -1, -(t.state IN ('failed', 'buried'))::integer, -(t.state = 'cancelled')::integer
        FROM (SELECT DISTINCT d.task_id FROM {schema}.tasklib_edges AS d WHERE d.group_id = g.id) AS e
        JOIN {schema}.tasks AS t ON t.id = e.task_id
        WHERE t.completed_at IS NOT NULL
    ) AS u
) AS m
WHERE g.id > :after::uuid
ORDER BY g.id
LIMIT :limit::integer;

-- name: import_groups
-- Store groups of another database that are not there, open: none is over before all its members have come.
INSERT INTO {schema}.tasklib_groups (
    id, task_id, key, kind, run_if, total, ended, failed, cancelled, max_failures, last_digest, fired_at
)
SELECT b.id, b.task_id, b.key, b.kind, b.run_if, b.total, b.ended, b.failed, b.cancelled, b.max_failures,
    b.last_digest, b.fired_at AT TIME ZONE 'UTC'
FROM jsonb_to_recordset(:batch::jsonb) AS b (
    id uuid, task_id uuid, key text, kind text, run_if text, total bigint, ended bigint, failed bigint, cancelled bigint,
    max_failures bigint, last_digest text, fired_at timestamp
)
ON CONFLICT DO NOTHING;

-- name: export_edges
-- Which tasks are before others, of these groups.
SELECT e.task_id, e.group_id, e.param, e.number
FROM {schema}.tasklib_edges AS e
WHERE e.group_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid));

-- name: import_edges
-- Store which tasks are before others.
INSERT INTO {schema}.tasklib_edges (task_id, group_id, param, number)
SELECT b.task_id, b.group_id, b.param, b.number
FROM jsonb_to_recordset(:batch::jsonb) AS b (task_id uuid, group_id uuid, param text, number integer)
ON CONFLICT DO NOTHING;

-- name: tally_imported
-- Count copied members that have ended, each once, for every group they belong to.
INSERT INTO {schema}.tasklib_tallies (group_id, ended, failed, cancelled)
SELECT m.group_id, 1, (t.state IN ('failed', 'buried'))::integer, (t.state = 'cancelled')::integer
FROM {schema}.tasks AS t
CROSS JOIN LATERAL (
    SELECT t.group_id WHERE t.group_id IS NOT NULL
    UNION
    SELECT e.group_id FROM {schema}.tasklib_edges AS e WHERE e.task_id = t.id
) AS m
WHERE t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)) AND t.completed_at IS NOT NULL;

-- name: close_groups
-- Let copied groups be over, now that their members have come; each is looked at by the next fold.
WITH closed AS (
    UPDATE {schema}.tasklib_groups AS g
    SET total = b.total, sealed = b.sealed,
        stopped_at = CASE WHEN b.stopped THEN coalesce(:now::timestamptz, now()) ELSE g.stopped_at END
    FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, total bigint, sealed boolean, stopped boolean)
    WHERE g.id = b.id AND NOT g.sealed AND g.total <= b.total
    RETURNING g.id
)
INSERT INTO {schema}.tasklib_tallies (group_id) SELECT c.id FROM closed AS c;
