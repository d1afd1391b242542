-- name: export_tasks
-- The next tasks after a position, in insertion order, as they are stored.
SELECT {columns}, t.group_id, t.fingerprint FROM tasks AS t WHERE t.seq > :after ORDER BY t.seq LIMIT :limit;

-- name: mark_copied
-- Note what a copy brings, for ever; which of it no copy has brought before.
INSERT INTO tasklib_copied (id) SELECT i.value FROM json_each(:ids) AS i WHERE true
ON CONFLICT DO NOTHING
RETURNING id;

-- name: unmark_copied
-- Forget tasks that could not be stored, because another one holds their unique key: the next copy tries again.
DELETE FROM tasklib_copied
WHERE id IN (SELECT i.value FROM json_each(:ids) AS i) AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.id = tasklib_copied.id);

-- name: import_tasks
-- Store tasks as they stood elsewhere, in the order given; one whose id or live unique key exists already is left out.
INSERT INTO tasks (
    id, name, state, scheduled_at, started_at, completed_at, created_at, updated_at, next_retry_at, expires_at,
    cancel_requested_at, timeout_seconds, progress, priority, version, attempts, retry_count, max_retries, lost_count,
    args, kwargs, tags, headers, result, history, log, error, progress_message, finished_by, unique_key, concurrency_key,
    waits_for, marks, group_id, fingerprint
)
SELECT
    n.value ->> 'id', n.value ->> 'name', n.value ->> 'state', n.value ->> 'scheduled_at', n.value ->> 'started_at',
    n.value ->> 'completed_at', n.value ->> 'created_at', n.value ->> 'updated_at', n.value ->> 'next_retry_at',
    n.value ->> 'expires_at', n.value ->> 'cancel_requested_at', n.value ->> 'timeout_seconds', n.value ->> 'progress',
    n.value ->> 'priority', n.value ->> 'version', n.value ->> 'attempts', n.value ->> 'retry_count',
    n.value ->> 'max_retries', n.value ->> 'lost_count', n.value -> 'args', n.value -> 'kwargs', n.value -> 'tags',
    nullif(n.value -> 'headers', 'null'), nullif(n.value -> 'result', 'null'), nullif(n.value -> 'history', 'null'),
    nullif(n.value -> 'log', 'null'), n.value ->> 'error', n.value ->> 'progress_message', n.value ->> 'finished_by',
    n.value ->> 'unique_key', n.value ->> 'concurrency_key', n.value ->> 'waits_for', n.value ->> 'marks',
    n.value ->> 'group_id', n.value ->> 'fingerprint'
FROM json_each(:batch) AS n
WHERE true
ON CONFLICT DO NOTHING
RETURNING id;

-- name: export_steps
-- What tasks have recorded, as it is stored.
SELECT s.task_id, s.key, s.number, s.kind, s.state, s.version, s.digest, s.value, s.error, s.until, s.tries, s.note, s.ask, s.undo,
    s.started_at, s.ended_at
FROM tasklib_steps AS s
WHERE s.task_id IN (SELECT i.value FROM json_each(:ids) AS i)
ORDER BY s.task_id, s.number, s.key;

-- name: import_steps
-- Store what tasks have recorded elsewhere.
INSERT INTO tasklib_steps (
    task_id, key, number, kind, state, version, digest, value, error, until, tries, note, ask, undo, started_at, ended_at
)
SELECT b.value ->> 'task_id', b.value ->> 'key', b.value ->> 'number', b.value ->> 'kind', b.value ->> 'state',
    b.value ->> 'version', b.value ->> 'digest', b.value ->> 'value', b.value ->> 'error', b.value ->> 'until',
    b.value ->> 'tries', b.value ->> 'note', b.value ->> 'ask', b.value ->> 'undo', b.value ->> 'started_at', b.value ->> 'ended_at'
FROM json_each(:batch) AS b
WHERE true
ON CONFLICT DO NOTHING;

-- name: export_waits
-- Which events open steps of tasks wait for.
SELECT w.event, w.task_id, w.key
FROM tasklib_waits AS w
WHERE w.task_id IN (SELECT i.value FROM json_each(:ids) AS i);

-- name: import_waits
-- Store which events open steps wait for.
INSERT INTO tasklib_waits (event, task_id, key)
SELECT b.value ->> 'event', b.value ->> 'task_id', b.value ->> 'key' FROM json_each(:batch) AS b WHERE true
ON CONFLICT DO NOTHING;

-- name: export_messages
-- Messages to tasks that no step has taken, the oldest first.
SELECT e.name, e.task_id, e.payload, e.sender, e.created_at
FROM tasklib_events AS e
WHERE e.task_id IN (SELECT i.value FROM json_each(:ids) AS i) AND e.taken_by IS NULL
ORDER BY e.id;

-- name: export_facts
-- The next facts after a position.
SELECT e.id, e.name, e.task_id, e.payload, e.sender, e.created_at
FROM tasklib_events AS e
WHERE e.id > :after AND e.task_id IS NULL
ORDER BY e.id
LIMIT :limit;

-- name: import_events
-- Store events of another database, to be delivered; a fact that is known already stays as it is.
INSERT INTO tasklib_events (name, task_id, payload, sender, created_at)
SELECT b.value ->> 'name', b.value ->> 'task_id', b.value ->> 'payload', b.value ->> 'sender', b.value ->> 'created_at'
FROM json_each(:batch) AS b
WHERE true
ORDER BY b.key
ON CONFLICT DO NOTHING;

-- name: redeliver_facts
-- Have facts delivered once more, for steps that have come to wait for them from another database.
UPDATE tasklib_events SET delivered_at = NULL
WHERE task_id IS NULL AND name IN (SELECT n.value FROM json_each(:names) AS n);

-- name: export_groups
-- The next groups after an id: with how many of their members have ended and were deleted, because no copied member shows that.
WITH page AS MATERIALIZED (SELECT p.* FROM tasklib_groups AS p WHERE p.id > :after ORDER BY p.id LIMIT :limit)
SELECT g.id, g.task_id, g.key, g.kind, g.run_if, g.total, g.sealed, g.max_failures, g.last_digest,
    g.fired_at, g.ended + coalesce(sum(m.ended), 0) AS ended, g.failed + coalesce(sum(m.failed), 0) AS failed,
    g.cancelled + coalesce(sum(m.cancelled), 0) AS cancelled,
    g.stopped_at IS NOT NULL
    OR g.kind IN ('run', 'map', 'flow') AND EXISTS (
        SELECT 1 FROM tasklib_tallies AS o WHERE o.group_id IS NULL AND o.task_id = g.task_id
    ) AS stopped
FROM page AS g
LEFT JOIN (
    SELECT t.group_id, t.ended, t.failed, t.cancelled
    FROM tasklib_tallies AS t WHERE t.group_id IN (SELECT p.id FROM page AS p)
    UNION ALL
    SELECT t.group_id, -1, -(t.state IN ('failed', 'buried')), -(t.state = 'cancelled')
    FROM page AS g CROSS JOIN tasks AS t WHERE {of_group} AND t.completed_at IS NOT NULL
    UNION ALL
    SELECT e.group_id, -1, -(t.state IN ('failed', 'buried')), -(t.state = 'cancelled')
    FROM (
        SELECT DISTINCT d.group_id, d.task_id FROM tasklib_edges AS d WHERE d.group_id IN (SELECT p.id FROM page AS p)
    ) AS e CROSS JOIN tasks AS t ON t.id = e.task_id
    WHERE t.completed_at IS NOT NULL
) AS m ON m.group_id = g.id
GROUP BY g.id
ORDER BY g.id;

-- name: import_groups
-- Store groups of another database that are not there, open: none is over before all its members have come.
INSERT INTO tasklib_groups (
    id, task_id, key, kind, run_if, total, ended, failed, cancelled, max_failures, last_digest, fired_at
)
SELECT b.value ->> 'id', b.value ->> 'task_id', b.value ->> 'key', b.value ->> 'kind', b.value ->> 'run_if',
    b.value ->> 'total', b.value ->> 'ended', b.value ->> 'failed', b.value ->> 'cancelled', b.value ->> 'max_failures',
    b.value ->> 'last_digest', b.value ->> 'fired_at'
FROM json_each(:batch) AS b
WHERE true
ON CONFLICT DO NOTHING;

-- name: export_edges
-- Which tasks are before others, of these groups.
SELECT e.task_id, e.group_id, e.param, e.number
FROM tasklib_edges AS e
WHERE e.group_id IN (SELECT i.value FROM json_each(:ids) AS i);

-- name: import_edges
-- Store which tasks are before others.
INSERT INTO tasklib_edges (task_id, group_id, param, number)
SELECT b.value ->> 'task_id', b.value ->> 'group_id', b.value ->> 'param', b.value ->> 'number'
FROM json_each(:batch) AS b
WHERE true
ON CONFLICT DO NOTHING;

-- name: tally_imported
-- Count copied members that have ended, each once, for every group they belong to.
INSERT INTO tasklib_tallies (group_id, ended, failed, cancelled)
SELECT m.group_id, 1, t.state IN ('failed', 'buried'), t.state = 'cancelled'
FROM json_each(:ids) AS i CROSS JOIN tasks AS t ON t.id = i.value
CROSS JOIN (
    SELECT n.group_id, n.id FROM tasks AS n WHERE n.id IN (SELECT j.value FROM json_each(:ids) AS j)
    UNION
    SELECT e.group_id, e.task_id FROM tasklib_edges AS e WHERE e.task_id IN (SELECT j.value FROM json_each(:ids) AS j)
) AS m ON m.id = t.id
WHERE t.completed_at IS NOT NULL AND m.group_id IS NOT NULL;

-- name: close_groups
-- Let copied groups be over, now that their members have come; each is looked at by the next fold.
INSERT INTO tasklib_tallies (group_id)
SELECT g.id FROM json_each(:batch) AS b CROSS JOIN tasklib_groups AS g ON g.id = b.value ->> 'id' WHERE NOT g.sealed;
UPDATE tasklib_groups
SET total = b.value ->> 'total', sealed = b.value ->> 'sealed',
    stopped_at = CASE WHEN b.value ->> 'stopped' THEN :now ELSE stopped_at END
FROM json_each(:batch) AS b
WHERE tasklib_groups.id = b.value ->> 'id' AND NOT tasklib_groups.sealed AND tasklib_groups.total <= b.value ->> 'total';
