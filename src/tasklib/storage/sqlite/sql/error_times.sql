-- name: count_errors_by_hour
-- How many tasks failed for good in each of the last 24 hours, by name and fingerprint; hour 0 is the one going on.
SELECT
    t.name, t.fingerprint, CAST((julianday(:now) - julianday(t.dead_at)) * 24 AS INTEGER) AS hour, count(*) AS count
FROM tasks AS t INDEXED BY tasks_dead
WHERE t.dead_at IS NOT NULL AND t.dead_at > strftime('%Y-%m-%d %H:%M:%f000', :now, '-24 hours') AND t.dead_at <= :now
GROUP BY t.name, t.fingerprint, hour;
