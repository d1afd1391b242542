-- name: retry_tasks
-- Restart tasks from zero attempts; only those in one of the states given, and of pending ones only those that are parked.
-- What was undone can only begin from scratch.
UPDATE tasks AS t
SET state = 'pending', attempts = 0, retry_count = 0, lost_count = 0, completed_at = NULL, next_retry_at = NULL, waits_for = NULL,
    result = NULL, error = NULL, fingerprint = NULL, progress = NULL, progress_message = NULL, cancel_requested_at = NULL,
    finished_by = NULL, expires_at = NULL, updated_at = :now,
    marks = iif(:from_scratch, nullif(marks & ~22, 0), marks),
    scheduled_at = min(scheduled_at, :now)
WHERE id IN (SELECT i.value FROM json_each(:ids) AS i) AND state IN (SELECT s.value FROM json_each(:states) AS s)
    AND (state <> 'pending' OR waits_for LIKE 'code%')
    AND (:from_scratch OR {can_resume})
RETURNING id, marks;

-- name: delay_tasks
-- Let tasks that were just restarted come due later, each after a delay of its own; none that waits for something else.
UPDATE tasks
SET scheduled_at = strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', b.value ->> 'delay'))
FROM json_each(:batch) AS b
WHERE tasks.id = b.value ->> 'id' AND tasks.state = 'pending' AND tasks.waits_for IS NULL
RETURNING tasks.id;

-- name: wake_workers
-- Differs by necessity: idle workers see by themselves that the file has changed.
SELECT NULL AS notified WHERE false;

-- name: count_retries
-- How many matching tasks a retry would restart: of each unique key one, and none whose key another task holds.
SELECT
    count(*) FILTER (WHERE t.unique_key IS NULL OR t.live_key IS NOT NULL)
    + count(DISTINCT json_array(t.name, t.unique_key)) FILTER (WHERE t.unique_key IS NOT NULL AND t.live_key IS NULL AND NOT EXISTS (
        SELECT 1 FROM tasks AS l WHERE l.name = t.name AND l.live_key = t.unique_key
    )) AS count
FROM tasks AS t
WHERE {matches} AND t.state NOT IN ('pending', 'running') AND {can_resume};

-- fragment: can_resume
(t.marks IS NULL OR t.marks & 2 = 0 OR NOT EXISTS (
        SELECT 1 FROM tasklib_groups AS u WHERE u.task_id = t.id AND u.kind = 'undo'
    ))

-- name: count_live
-- How many matching tasks have not ended: a cancel would reach them, and so would another priority.
SELECT count(*) AS count FROM tasks AS t WHERE {matches} AND t.completed_at IS NULL;

-- name: count_deletes
-- How many matching tasks a delete would remove.
SELECT count(*) AS count FROM tasks AS t WHERE {matches} AND t.completed_at IS NOT NULL;

-- name: cancel_tasks
-- Cancel waiting tasks at once and ask the workers of running ones to stop; says which it was for each.
UPDATE tasks
SET state = CASE WHEN state = 'running' THEN 'running' ELSE 'cancelled' END,
    completed_at = CASE WHEN state <> 'running' THEN :now END,
    next_retry_at = NULL, waits_for = NULL,
    cancel_requested_at = coalesce(cancel_requested_at, :now), updated_at = :now
WHERE id IN (SELECT i.value FROM json_each(:ids) AS i)
    AND (state IN ('pending', 'running') OR (state = 'failed' AND next_retry_at IS NOT NULL))
RETURNING id, state;

-- name: set_priorities
-- Change the priority of tasks that have not ended; one that runs keeps its attempt, and has it from the next on.
UPDATE tasks SET priority = :priority, updated_at = :now
WHERE id IN (SELECT i.value FROM json_each(:ids) AS i) AND completed_at IS NULL
RETURNING id;

-- name: delete_tasks
-- Remove finished tasks.
DELETE FROM tasks
WHERE id IN (SELECT i.value FROM json_each(:ids) AS i) AND completed_at IS NOT NULL
RETURNING id;

-- name: pick_matching
-- The next tasks matching the filter after a position, in insertion order.
SELECT t.id, t.seq
FROM tasks AS t
WHERE {matches} AND t.seq > :after AND t.seq <= :until
ORDER BY t.seq
LIMIT :limit;

-- name: lock_matching
-- Differs by necessity: a writer has the whole file locked, so that picked tasks are only read.
SELECT t.id, t.seq, t.state, t.name, t.unique_key
FROM tasks AS t
WHERE t.id IN (SELECT p.value FROM json_each(:picked) AS p) AND {matches}
ORDER BY t.id;

-- name: last_position
-- The newest insertion, where a bulk action that starts now shall end.
SELECT coalesce(max(t.seq), 0) AS seq FROM tasks AS t;

-- fragment: is_needed
-- A child whose workflow lives or may be resumed, and a task of a flow whose result another still waits for, are kept by
-- every clean-up.
(t.marks IS NOT NULL AND (
        EXISTS (
            SELECT 1 FROM tasklib_groups AS g CROSS JOIN tasks AS o ON o.id = g.task_id
            WHERE g.id = t.group_id AND g.kind NOT IN ('left', 'gone') AND o.state <> 'completed'
        )
        OR t.marks & 32 > 0 AND EXISTS (
            SELECT 1 FROM tasklib_edges AS e CROSS JOIN tasklib_groups AS g ON g.id = e.group_id
            WHERE e.task_id = t.id AND g.fired_at IS NULL
        )
    ))

-- name: cleanup_tasks
-- Remove a bounded number of finished tasks that ended before a moment.
DELETE FROM temp.tasklib_picked;
INSERT INTO temp.tasklib_picked (ord, seq)
SELECT t.seq, t.seq
FROM tasks AS t
WHERE t.completed_at < :older_than AND t.state IN (SELECT s.value FROM json_each(:states) AS s)
    AND (:name IS NULL OR t.name = :name) AND t.seq > :after AND t.seq <= :until
    AND NOT {is_needed}
ORDER BY t.seq
LIMIT :limit;
DELETE FROM tasks WHERE seq IN (SELECT +p.seq FROM temp.tasklib_picked AS p);
SELECT count(*) AS deleted, max(p.seq) AS last FROM temp.tasklib_picked AS p;
