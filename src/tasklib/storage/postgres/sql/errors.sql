-- name: list_errors
-- Tasks that failed for good or were buried, by name and fingerprint: how many, since when, and the latest of each.
SELECT g.name, g.fingerprint, g.count, g.first_seen, g.last_seen, example.id, example.error
FROM (
    SELECT t.name, t.fingerprint, count(*) AS count, min(t.dead_at) AS first_seen, max(t.dead_at) AS last_seen
    FROM {schema}.tasks AS t
    WHERE t.dead_at IS NOT NULL AND (:name::text IS NULL OR t.name = :name::text)
    GROUP BY t.name, t.fingerprint
    ORDER BY last_seen DESC, t.name, t.fingerprint
    LIMIT :limit::integer
) AS g
CROSS JOIN LATERAL (
    -- An index finds one that is known, and one that is NULL, but not one that is either.
    SELECT found.id, found.error FROM (
        (SELECT t.id, t.error, t.dead_at FROM {schema}.tasks AS t
        WHERE t.name = g.name AND t.fingerprint = g.fingerprint AND t.dead_at IS NOT NULL
        ORDER BY t.dead_at DESC LIMIT 1)
        UNION ALL
        (SELECT t.id, t.error, t.dead_at FROM {schema}.tasks AS t
        WHERE t.name = g.name AND t.fingerprint IS NULL AND g.fingerprint IS NULL AND t.dead_at IS NOT NULL
        ORDER BY t.dead_at DESC LIMIT 1)
    ) AS found LIMIT 1
) AS example
ORDER BY g.last_seen DESC, g.name, g.fingerprint;

-- name: redrive_tasks
-- Restart tasks from zero attempts, each due after a delay of its own; only those that failed for good.
UPDATE {schema}.tasks AS t
SET state = 'pending', attempts = 0, retry_count = 0, lost_count = 0, completed_at = NULL, next_retry_at = NULL, waits_for = NULL,
    result = NULL, error = NULL, fingerprint = NULL, progress = NULL, progress_message = NULL,
    cancel_requested_at = NULL, finished_by = NULL, expires_at = NULL, updated_at = c.now,
    scheduled_at = c.now + make_interval(secs => b.delay)
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c,
    jsonb_to_recordset(:batch::jsonb) AS b (id uuid, delay double precision)
WHERE t.id = ANY (ARRAY(SELECT (e.value ->> 'id')::uuid FROM jsonb_array_elements(:batch::jsonb) AS e))
    AND t.id = b.id AND t.dead_at IS NOT NULL AND {can_resume}
RETURNING t.id, t.marks;
-- name: count_errors_by_hour
-- How many tasks failed for good in each of the last 24 hours, by name and fingerprint; hour 0 is the one going on.
SELECT t.name, t.fingerprint, floor(extract(epoch FROM c.now - t.dead_at) / 3600)::integer AS hour, count(*) AS count
FROM {schema}.tasks AS t CROSS JOIN (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
WHERE t.dead_at IS NOT NULL AND t.dead_at > c.now - interval '24 hours' AND t.dead_at <= c.now
GROUP BY t.name, t.fingerprint, hour;
