-- name: get_record
-- One recorded step as a worker sees it, with the seconds that are left until its moment.
SELECT s.key, s.number, s.kind, s.state, s.digest, s.value, s.error, s.tries, s.note, s.ask,
    (julianday(s.until) - julianday(:now)) * 86400.0 AS left
FROM tasklib_steps AS s WHERE s.task_id = :id AND s.key = :key;

-- name: next_step_number
-- The number of the next step of a task.
SELECT coalesce(max(s.number), 0) + 1 AS number FROM tasklib_steps AS s WHERE s.task_id = :id;

-- name: find_oldest_child
-- The oldest child that a workflow still waits for.
SELECT o.id, o.name, o.state, o.created_at
FROM tasklib_groups AS g CROSS JOIN tasks AS o ON o.id = (
    SELECT t.id FROM tasks AS t WHERE {of_group} AND t.completed_at IS NULL ORDER BY t.id LIMIT 1
)
WHERE g.task_id = :id AND g.fired_at IS NULL
ORDER BY o.seq
LIMIT 1;

-- name: count_workflows
-- How much there is of what workflows wait for, and of what workers have still to do about it; each by an index of its own.
SELECT 'waiting' AS series, substr(t.waits_for, 1, instr(t.waits_for || ' ', ' ') - 1) AS kind, count(*) AS count
FROM tasks AS t WHERE t.waits_for IS NOT NULL GROUP BY substr(t.waits_for, 1, instr(t.waits_for || ' ', ' ') - 1)
UNION ALL
SELECT 'questions', '', count(*) FROM tasklib_steps AS s WHERE s.kind = 'ask' AND s.state = 'open'
UNION ALL
SELECT 'events', '', count(*) FROM tasklib_events AS e WHERE e.delivered_at IS NULL
UNION ALL
SELECT 'ends', '', count(*) FROM tasklib_tallies
UNION ALL
SELECT 'stopping', '', count(*) FROM tasklib_groups AS g WHERE g.stopped_at IS NOT NULL AND g.cleared_at IS NULL;
