-- name: list_errors
-- Tasks that failed for good or were buried, by name and fingerprint: how many, since when, and the latest of each.
-- Of the columns beside an aggregate max(), SQLite takes those of the row that has the maximum.
SELECT t.name, t.fingerprint, count(*) AS count, min(t.dead_at) AS first_seen, g.last_seen, g.id, g.error
FROM tasks AS t INDEXED BY tasks_dead
JOIN (
    SELECT x.name, x.fingerprint, max(x.dead_at) AS last_seen, x.id, x.error
    FROM tasks AS x INDEXED BY tasks_dead
    WHERE x.dead_at IS NOT NULL AND (:name IS NULL OR x.name = :name)
    GROUP BY x.name, x.fingerprint
    ORDER BY last_seen DESC, x.name, x.fingerprint
    LIMIT :limit
) AS g ON g.name = t.name AND g.fingerprint IS t.fingerprint
WHERE t.dead_at IS NOT NULL
GROUP BY t.name, t.fingerprint
ORDER BY g.last_seen DESC, t.name, t.fingerprint;

-- name: redrive_tasks
-- Restart tasks from zero attempts, each due after a delay of its own; only those that failed for good.
UPDATE tasks AS t
SET state = 'pending', attempts = 0, retry_count = 0, lost_count = 0, completed_at = NULL, next_retry_at = NULL, waits_for = NULL,
    result = NULL, error = NULL, fingerprint = NULL, progress = NULL, progress_message = NULL,
    cancel_requested_at = NULL, finished_by = NULL, expires_at = NULL, updated_at = :now,
    scheduled_at = strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', b.value ->> 'delay'))
FROM json_each(:batch) AS b
WHERE t.id = b.value ->> 'id' AND t.dead_at IS NOT NULL AND {can_resume}
RETURNING id, marks;
-- name: count_errors_by_hour
-- How many tasks failed for good in each of the last 24 hours, by name and fingerprint; hour 0 is the one going on.
SELECT
    t.name, t.fingerprint, CAST((julianday(:now) - julianday(t.dead_at)) * 24 AS INTEGER) AS hour, count(*) AS count
FROM tasks AS t INDEXED BY tasks_dead
WHERE t.dead_at IS NOT NULL AND t.dead_at > strftime('%Y-%m-%d %H:%M:%f000', :now, '-24 hours') AND t.dead_at <= :now
GROUP BY t.name, t.fingerprint, hour;
