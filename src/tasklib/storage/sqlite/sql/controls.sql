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
