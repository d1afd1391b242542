-- name: take_chore
-- Take the turn of a chore for some seconds; no row means that another worker has it.
INSERT INTO tasklib_chores (name, until)
SELECT :name, strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :seconds)) WHERE true
ON CONFLICT (name) DO UPDATE SET until = excluded.until
WHERE tasklib_chores.until <= :now
RETURNING position;

-- name: note_chore
-- Note how far a chore has come, and let anybody go on with it.
UPDATE tasklib_chores SET position = :position, until = '' WHERE name = :name;

-- name: sweep_tasks
-- Look at the next rows in the order of their insertion, and remove those that ended longer ago than their rule allows.
DELETE FROM temp.tasklib_picked;
INSERT INTO temp.tasklib_picked (ord, seq)
SELECT t.seq, t.seq FROM tasks AS t WHERE t.seq > :after ORDER BY t.seq LIMIT :limit;
DELETE FROM temp.tasklib_swept;
-- Looked up one by one: for a join SQLite may read the whole table first, to make a Bloom filter.
INSERT INTO temp.tasklib_swept (looked, last, fresh)
SELECT count(*), max(p.seq), coalesce(
    max((SELECT t.created_at FROM tasks AS t WHERE t.seq = p.seq))
        > strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', -:shortest)), 1
)
FROM temp.tasklib_picked AS p;
DELETE FROM tasks AS t
WHERE seq IN (SELECT +p.seq FROM temp.tasklib_picked AS p) AND (julianday(:now) - julianday(completed_at)) * 86400.0 > coalesce(
    (
        SELECT coalesce(r.value ->> 'seconds', 1e300) FROM json_each(:rules) AS r
        WHERE r.value ->> 'state' = t.state AND r.value ->> 'name' = t.name LIMIT 1
    ),
    (
        SELECT coalesce(r.value ->> 'seconds', 1e300) FROM json_each(:rules) AS r
        WHERE r.value ->> 'state' = t.state AND r.value ->> 'name' IS NULL LIMIT 1
    ),
    1e300
) AND NOT {is_needed};
SELECT s.looked, s.last, s.fresh, (
    SELECT count(*) FROM temp.tasklib_picked AS p WHERE NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.seq = p.seq)
) AS deleted
FROM temp.tasklib_swept AS s;

-- name: look_for_old_facts
-- The time, if there are facts that were emitted longer ago than so many seconds.
SELECT :now AS now
WHERE EXISTS (
    SELECT 1 FROM tasklib_events AS e
    WHERE e.task_id IS NULL AND e.created_at < strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', -:seconds))
);

-- name: look_for_live_tasks
-- Look at the next rows in the order of their insertion: how far that goes, and when the oldest that has not ended was
-- submitted.
SELECT count(*) AS looked, max(p.seq) AS last, min(p.created_at) FILTER (WHERE p.completed_at IS NULL) AS oldest
FROM (
    SELECT t.seq, t.created_at, t.completed_at FROM tasks AS t WHERE t.seq > :after ORDER BY t.seq LIMIT :limit
) AS p;

-- name: sweep_facts
-- Remove facts that were emitted before a moment, and for which nobody waits.
DELETE FROM tasklib_events
WHERE id IN (
    SELECT e.id FROM tasklib_events AS e
    WHERE e.task_id IS NULL AND e.created_at < :before AND e.delivered_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM tasklib_waits AS w WHERE w.event = e.name)
    ORDER BY e.created_at
    LIMIT :limit
)
RETURNING id;
