-- name: look_at_waiting
-- How many tasks of each name are due, and since when the first of them.
SELECT t.name, count(*) AS count, (julianday(:now) - julianday(min(t.due_at))) * 86400.0 AS behind
FROM tasks AS t
WHERE t.due_at <= :now
GROUP BY t.name
ORDER BY t.name;

-- name: look_for_orphans
-- How many running tasks no worker holds although their lease has passed; reads the whole table.
SELECT count(*) AS count
FROM tasks AS t
WHERE t.state = 'running' AND t.locked_until < :now AND NOT EXISTS (
    SELECT 1 FROM tasklib_claims AS h CROSS JOIN json_each(h.seqs) AS held
    WHERE held.value = t.seq AND h.versions ->> held.key = t.version
);

-- name: look_at_parts
-- The indexes and triggers of the task table that are there.
SELECT m.name FROM sqlite_master AS m WHERE m.tbl_name = 'tasks' AND m.type IN ('index', 'trigger');

-- name: look_for_alembic
-- Whether Alembic keeps its version beside our tables.
SELECT count(*) AS count FROM sqlite_master AS m WHERE m.type = 'table' AND m.name = 'alembic_version';
