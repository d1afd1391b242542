-- name: set_objective
-- Store how many tasks of a name should start, or end, within a time; no row if that is stored already.
INSERT INTO {schema}.tasklib_objectives AS o (name, kind, within_seconds, target, set_at, set_by)
VALUES (:name::text, :kind::text, :within::float8, :target::float8, coalesce(:now::timestamptz, now()), :by::text)
ON CONFLICT (name, kind) DO UPDATE
SET within_seconds = excluded.within_seconds, target = excluded.target, set_at = excluded.set_at, set_by = excluded.set_by
WHERE (o.within_seconds, o.target, o.set_by) IS DISTINCT FROM (excluded.within_seconds, excluded.target, excluded.set_by)
RETURNING o.name;

-- name: remove_objective
-- Remove an objective; no row if there is none.
DELETE FROM {schema}.tasklib_objectives AS o WHERE o.name = :name::text AND o.kind = :kind::text RETURNING o.name;

-- name: list_objectives
-- All objectives, by name.
SELECT o.name, o.kind, o.within_seconds, o.target, o.set_at, o.set_by
FROM {schema}.tasklib_objectives AS o
ORDER BY o.name, o.kind
LIMIT :limit::integer;

-- name: mark_error
-- Record what was decided about a group of errors.
INSERT INTO {schema}.tasklib_error_marks AS m (group_id, mark, set_at, set_by)
VALUES (:id::text, :mark::text, coalesce(:now::timestamptz, now()), :by::text)
ON CONFLICT (group_id) DO UPDATE SET mark = excluded.mark, set_at = excluded.set_at, set_by = excluded.set_by;

-- name: unmark_error
-- Forget what was decided about a group of errors; no row if nothing was.
DELETE FROM {schema}.tasklib_error_marks AS m WHERE m.group_id = :id::text RETURNING m.group_id;

-- name: list_error_marks
-- What was decided about groups of errors.
SELECT m.group_id, m.mark, m.set_at, m.set_by FROM {schema}.tasklib_error_marks AS m ORDER BY m.set_at DESC LIMIT :limit::integer;
