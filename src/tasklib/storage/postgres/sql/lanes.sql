-- fragment: lane_attempts
-- Attempts between two moments, of the tasks in a range of insertion order: what completed, what runs, and what failed.
-- They are read once, and only those that can have run in this time.
WITH near AS MATERIALIZED (
    SELECT t.id, t.name, t.concurrency_key, t.state, t.started_at, t.completed_at, t.finished_by, t.worker_id, t.history
    FROM {schema}.tasks AS t
    WHERE t.seq < :before::bigint AND t.seq >= :floor::bigint AND (:name::text IS NULL OR t.name = :name::text)
        AND t.started_at IS NOT NULL AND t.created_at < to_timestamp(:until::float8)
        AND (t.completed_at IS NULL OR t.completed_at >= to_timestamp(:since::float8))
),
attempts AS (
    SELECT n.id, n.name, n.concurrency_key, coalesce(n.finished_by, n.worker_id) AS worker_id,
        CASE WHEN n.state = 'running' THEN 'running' ELSE 'completed' END AS outcome,
        extract(epoch FROM n.started_at)::float8 AS began,
        coalesce(extract(epoch FROM n.completed_at)::float8, :clock::float8) AS ended
    FROM near AS n
    WHERE n.state IN ('completed', 'running')
    UNION ALL
    SELECT n.id, n.name, n.concurrency_key, h.value ->> 'worker_id', h.value ->> 'outcome',
        extract(epoch FROM (h.value ->> 'started_at')::timestamptz)::float8,
        extract(epoch FROM (h.value ->> 'ended_at')::timestamptz)::float8
    FROM near AS n
    CROSS JOIN LATERAL jsonb_array_elements(n.history) AS h (value)
    WHERE jsonb_typeof(n.history) = 'array'
),
laned AS (
    SELECT a.id, a.name, CASE WHEN :by::text = 'key' THEN a.concurrency_key ELSE a.worker_id END AS lane, a.outcome,
        greatest(a.began, :since::float8) AS began, least(a.ended, :until::float8) AS ended
    FROM attempts AS a
    WHERE a.began < :until::float8 AND a.ended >= :since::float8 AND a.ended >= a.began
)

-- name: list_attempts
-- Attempts in a range of insertion order that ran between two moments, each with its lane; no more than so many.
-- plan: custom
{lane_attempts}
SELECT l.id, l.name, l.lane, l.outcome, l.began, l.ended FROM laned AS l WHERE l.lane IS NOT NULL LIMIT :limit::integer;

-- name: sum_attempts
-- The same, added up by lane, name and the steps in which they began and ended; seconds count from the start of the step.
-- plan: custom
{lane_attempts}
SELECT s.lane, s.name, s.first, s.last, count(*) AS count,
    sum(s.began - :since::float8 - s.first * :step::float8) AS began,
    sum(s.ended - :since::float8 - s.last * :step::float8) AS ended,
    count(*) FILTER (WHERE s.outcome NOT IN ('completed', 'running', 'cancelled', 'parked', 'lost')) AS failed,
    count(*) FILTER (WHERE s.outcome = 'lost') AS lost
FROM (
    SELECT l.lane, l.name, l.outcome, l.began, l.ended,
        floor((l.began - :since::float8) / :step::float8)::integer AS first,
        floor((l.ended - :since::float8) / :step::float8)::integer AS last
    FROM laned AS l
    WHERE l.lane IS NOT NULL
) AS s
GROUP BY s.lane, s.name, s.first, s.last;

-- name: date_position
-- When the newest task before a position was made.
SELECT t.created_at FROM {schema}.tasks AS t WHERE t.seq < :before::bigint ORDER BY t.seq DESC LIMIT 1;
