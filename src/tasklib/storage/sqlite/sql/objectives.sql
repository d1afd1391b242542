-- name: set_objective
-- Store how many tasks of a name should start, or end, within a time; no row if that is stored already.
INSERT INTO tasklib_objectives AS o (name, kind, within_seconds, target, set_at, set_by)
VALUES (:name, :kind, :within, :target, :now, :by)
ON CONFLICT (name, kind) DO UPDATE
SET within_seconds = excluded.within_seconds, target = excluded.target, set_at = excluded.set_at, set_by = excluded.set_by
WHERE (o.within_seconds, o.target, o.set_by) IS NOT (excluded.within_seconds, excluded.target, excluded.set_by)
RETURNING name;

-- name: remove_objective
-- Remove an objective; no row if there is none.
DELETE FROM tasklib_objectives WHERE name = :name AND kind = :kind RETURNING name;

-- name: list_objectives
-- All objectives, by name.
SELECT o.name, o.kind, o.within_seconds, o.target, o.set_at, o.set_by
FROM tasklib_objectives AS o
ORDER BY o.name, o.kind
LIMIT :limit;

-- name: mark_error
-- Record what was decided about a group of errors.
INSERT INTO tasklib_error_marks (group_id, mark, set_at, set_by)
VALUES (:id, :mark, :now, :by)
ON CONFLICT (group_id) DO UPDATE SET mark = excluded.mark, set_at = excluded.set_at, set_by = excluded.set_by;

-- name: unmark_error
-- Forget what was decided about a group of errors; no row if nothing was.
DELETE FROM tasklib_error_marks WHERE group_id = :id RETURNING group_id;

-- name: list_error_marks
-- What was decided about groups of errors.
SELECT m.group_id, m.mark, m.set_at, m.set_by FROM tasklib_error_marks AS m ORDER BY m.set_at DESC LIMIT :limit;
