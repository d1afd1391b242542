-- name: count_errors_by_hour
-- How many tasks failed for good in each of the last 24 hours, by name and fingerprint; hour 0 is the one going on.
SELECT t.name, t.fingerprint, floor(extract(epoch FROM c.now - t.dead_at) / 3600)::integer AS hour, count(*) AS count
FROM {schema}.tasks AS t CROSS JOIN (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
WHERE t.dead_at IS NOT NULL AND t.dead_at > c.now - interval '24 hours' AND t.dead_at <= c.now
GROUP BY t.name, t.fingerprint, hour;
