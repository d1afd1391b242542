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
