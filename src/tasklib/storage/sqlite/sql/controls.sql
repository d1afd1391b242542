-- name: pause
-- Stop starting tasks of one name, or with the empty name of all; running ones finish.
INSERT INTO tasklib_controls (name, paused_at, paused_by, reason)
VALUES (:name, :now, :by, :reason)
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce(tasklib_controls.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
    reason = excluded.reason
RETURNING name;

-- name: resume
-- Start tasks of one name, or with the empty name everything that was paused as a whole, again.
UPDATE tasklib_controls SET paused_at = NULL, paused_by = NULL, reason = NULL
WHERE name = :name AND paused_at IS NOT NULL
RETURNING name;

-- name: list_pauses
-- What is paused now, by whom and why.
SELECT c.name, c.paused_at, c.paused_by, c.reason
FROM tasklib_controls AS c WHERE c.paused_at IS NOT NULL ORDER BY c.name;

-- name: set_rate
-- Let at most so many tasks of one name, or with the empty name of all, start in a second; NULL lifts the limit.
INSERT INTO tasklib_controls (name, rate, tokens, refilled_at)
VALUES (:name, :rate, max(1.0, :rate), :now)
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, refilled_at = excluded.refilled_at,
    -- What is in the bucket stays, as far as the new one holds it.
    tokens = CASE WHEN excluded.rate IS NOT NULL THEN min(excluded.tokens, coalesce(
        tokens + max(0.0, (julianday(excluded.refilled_at) - julianday(refilled_at)) * 86400.0) * rate, excluded.tokens
    )) END
RETURNING name;

-- name: set_max_running
-- Let at most so many tasks of one name, or with the empty name of all, run at once; NULL lifts the limit.
INSERT INTO tasklib_controls (name, max_running)
VALUES (:name, :count)
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running
RETURNING name;

-- name: list_limits
-- The limits in force, by name; the empty name is for all.
SELECT c.name, c.rate, c.max_running, min(max(1.0, c.rate),
    c.tokens + max(0.0, (julianday(:now) - julianday(c.refilled_at)) * 86400.0) * c.rate) AS tokens
FROM tasklib_controls AS c
WHERE c.rate IS NOT NULL OR c.max_running IS NOT NULL
ORDER BY c.name;
