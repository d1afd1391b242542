-- name: get_record
-- One recorded step as a worker sees it, with the seconds that are left until its moment.
SELECT s.key, s.number, s.kind, s.state, s.digest, s.value::text AS value, s.error::text AS error, s.tries, s.note, s.ask::text AS ask,
    extract(epoch FROM s.until - coalesce(:now::timestamptz, now()))::float8 AS left
FROM {schema}.tasklib_steps AS s WHERE s.task_id = :id::uuid AND s.key = :key::text;

-- name: next_step_number
-- The number of the next step of a task.
SELECT coalesce(max(s.number), 0) + 1 AS number FROM {schema}.tasklib_steps AS s WHERE s.task_id = :id::uuid;

-- name: find_oldest_child
-- The oldest child that a workflow still waits for.
SELECT o.id, o.name, o.state, o.created_at
FROM {schema}.tasklib_groups AS g CROSS JOIN LATERAL (
    SELECT t.id, t.name, t.state, t.created_at, t.seq FROM {schema}.tasks AS t
    WHERE {of_group} AND t.completed_at IS NULL ORDER BY t.id LIMIT 1
) AS o
WHERE g.task_id = :id::uuid AND g.fired_at IS NULL
ORDER BY o.seq
LIMIT 1;

-- name: count_workflows
-- How much there is of what workflows wait for, and of what workers have still to do about it; each by an index of its own.
SELECT 'waiting' AS series, split_part(t.waits_for, ' ', 1) AS kind, count(*) AS count
FROM {schema}.tasks AS t WHERE t.waits_for IS NOT NULL GROUP BY split_part(t.waits_for, ' ', 1)
UNION ALL
SELECT 'questions', '', count(*) FROM {schema}.tasklib_steps AS s WHERE s.kind = 'ask' AND s.state = 'open'
UNION ALL
SELECT 'events', '', count(*) FROM {schema}.tasklib_events AS e WHERE e.delivered_at IS NULL
UNION ALL
SELECT 'ends', '', count(*) FROM {schema}.tasklib_tallies
UNION ALL
SELECT 'stopping', '', count(*) FROM {schema}.tasklib_groups AS g WHERE g.stopped_at IS NOT NULL AND g.cleared_at IS NULL;
