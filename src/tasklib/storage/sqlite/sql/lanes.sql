-- fragment: lane_attempts
-- Attempts between two moments, of the tasks in a range of insertion order: what completed, what runs, and what failed.
-- They are read once, and only those that can have run in this time.
WITH near AS MATERIALIZED (
    SELECT t.id, t.name, t.concurrency_key, t.state, t.started_at, t.completed_at, t.finished_by, t.worker_id, t.history
    FROM tasks AS t
    WHERE t.seq < :before AND t.seq >= :floor AND (:name IS NULL OR t.name = :name)
        AND t.started_at IS NOT NULL AND {created_epoch} < :until
        AND (t.completed_at IS NULL OR {completed_epoch} >= :since)
),
attempts AS (
    SELECT n.id, n.name, n.concurrency_key, coalesce(n.finished_by, n.worker_id) AS worker_id,
        CASE WHEN n.state = 'running' THEN 'running' ELSE 'completed' END AS outcome,
        (julianday(n.started_at) - 2440587.5) * 86400.0 AS began,
        coalesce((julianday(n.completed_at) - 2440587.5) * 86400.0, :clock) AS ended
    FROM near AS n
    WHERE n.state IN ('completed', 'running')
    UNION ALL
    SELECT n.id, n.name, n.concurrency_key, h.value ->> 'worker_id', h.value ->> 'outcome',
        (julianday(h.value ->> 'started_at') - 2440587.5) * 86400.0,
        (julianday(h.value ->> 'ended_at') - 2440587.5) * 86400.0
    FROM near AS n
    CROSS JOIN json_each(n.history) AS h
    WHERE json_type(n.history) = 'array'
),
laned AS (
    SELECT a.id, a.name, CASE WHEN :by = 'key' THEN a.concurrency_key ELSE a.worker_id END AS lane, a.outcome,
        max(a.began, :since) AS began, min(a.ended, :until) AS ended
    FROM attempts AS a
    WHERE a.began < :until AND a.ended >= :since AND a.ended >= a.began
)

-- fragment: created_epoch
(julianday(t.created_at) - 2440587.5) * 86400.0

-- fragment: completed_epoch
(julianday(t.completed_at) - 2440587.5) * 86400.0

-- name: list_attempts
-- Attempts in a range of insertion order that ran between two moments, each with its lane; no more than so many.
{lane_attempts}
SELECT l.id, l.name, l.lane, l.outcome, l.began, l.ended FROM laned AS l WHERE l.lane IS NOT NULL LIMIT :limit;

-- name: sum_attempts
-- The same, added up by lane, name and the steps in which they began and ended; seconds count from the start of the step.
{lane_attempts}
SELECT s.lane, s.name, s.first, s.last, count(*) AS count,
    sum(s.began - :since - s.first * :step) AS began, sum(s.ended - :since - s.last * :step) AS ended,
    count(*) FILTER (WHERE s.outcome NOT IN ('completed', 'running', 'cancelled', 'parked', 'lost')) AS failed,
    count(*) FILTER (WHERE s.outcome = 'lost') AS lost
FROM (
    SELECT l.lane, l.name, l.outcome, l.began, l.ended,
        CAST((l.began - :since) / :step AS INTEGER) AS first, CAST((l.ended - :since) / :step AS INTEGER) AS last
    FROM laned AS l
    WHERE l.lane IS NOT NULL
) AS s
GROUP BY s.lane, s.name, s.first, s.last;

-- name: date_position
-- When the newest task before a position was made.
SELECT t.created_at FROM tasks AS t WHERE t.seq < :before ORDER BY t.seq DESC LIMIT 1;
