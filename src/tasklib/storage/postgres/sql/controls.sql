-- name: pause
-- Stop starting tasks of one name, or with the empty name of all; running ones finish.
INSERT INTO {schema}.tasklib_controls (name, paused_at, paused_by, reason)
SELECT :name::text, coalesce(:now::timestamptz, now()), :by::text, :reason::text
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce({schema}.tasklib_controls.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
    reason = excluded.reason
RETURNING name;

-- name: resume
-- Start tasks of one name, or with the empty name everything that was paused as a whole, again.
WITH resumed AS (
    UPDATE {schema}.tasklib_controls AS c SET paused_at = NULL, paused_by = NULL, reason = NULL
    WHERE c.name = :name::text AND c.paused_at IS NOT NULL
    RETURNING c.name
)
SELECT r.name, pg_notify('{channel}', 'new')::text AS notified FROM resumed AS r;

-- name: list_pauses
-- What is paused now, by whom and why.
SELECT c.name, c.paused_at, c.paused_by, c.reason
FROM {schema}.tasklib_controls AS c WHERE c.paused_at IS NOT NULL ORDER BY c.name;

-- name: set_rate
-- Let at most so many tasks of one name, or with the empty name of all, start in a second; NULL lifts the limit.
INSERT INTO {schema}.tasklib_controls AS c (name, rate, tokens, refilled_at)
SELECT :name::text, :rate::float8, greatest(1, :rate::float8), n.now
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS n
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, refilled_at = excluded.refilled_at, version = c.version + 1,
    -- What is in the bucket stays, as far as the new one holds it.
    tokens = CASE WHEN excluded.rate IS NULL THEN NULL ELSE least(excluded.tokens, coalesce(
        c.tokens + greatest(0, extract(epoch FROM excluded.refilled_at - c.refilled_at)::float8) * c.rate, excluded.tokens
    )) END
RETURNING c.name, pg_notify('{channel}', 'new')::text AS notified;

-- name: set_max_running
-- Let at most so many tasks of one name, or with the empty name of all, run at once; NULL lifts the limit.
INSERT INTO {schema}.tasklib_controls AS c (name, max_running)
SELECT :name::text, :count::integer
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running, version = c.version + 1
RETURNING c.name, pg_notify('{channel}', 'new')::text AS notified;

-- name: list_limits
-- The limits in force, by name; the empty name is for all.
SELECT c.name, c.rate, c.max_running, CASE WHEN c.rate IS NOT NULL THEN least(greatest(1, c.rate), c.tokens + c.rate
    * greatest(0, extract(epoch FROM coalesce(:now::timestamptz, now()) - c.refilled_at)::float8)) END AS tokens
FROM {schema}.tasklib_controls AS c
WHERE c.rate IS NOT NULL OR c.max_running IS NOT NULL
ORDER BY c.name;
