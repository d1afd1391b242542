-- name: take_chore
-- Take the turn of a chore for some seconds; no row means that another worker has it.
INSERT INTO {schema}.tasklib_chores AS c (name, until)
SELECT :name::text, n.now + make_interval(secs => :seconds::float8)
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS n
ON CONFLICT (name) DO UPDATE SET until = excluded.until
WHERE c.until <= coalesce(:now::timestamptz, now())
RETURNING c.position;

-- name: note_chore
-- Note how far a chore has come, and let anybody go on with it.
UPDATE {schema}.tasklib_chores AS c SET position = :position::bigint, until = '-infinity' WHERE c.name = :name::text;

-- name: sweep_tasks
-- Look at the next rows in the order of their insertion, and remove those that ended longer ago than their rule allows.
WITH clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
rule AS MATERIALIZED (
    SELECT r.* FROM jsonb_to_recordset(:rules::jsonb) AS r (name text, state text, seconds double precision)
),
page AS MATERIALIZED (
    SELECT t.seq, t.created_at FROM {schema}.tasks AS t WHERE t.seq > :after::bigint ORDER BY t.seq LIMIT :limit::integer
),
old AS MATERIALIZED (
    SELECT t.ctid AS tid
    FROM {schema}.tasks AS t CROSS JOIN clock
    WHERE t.seq = ANY (ARRAY(SELECT p.seq FROM page AS p)) AND extract(epoch FROM clock.now - t.completed_at) > coalesce(
        (SELECT coalesce(r.seconds, 'Infinity') FROM rule AS r WHERE r.state = t.state AND r.name = t.name LIMIT 1),
        (SELECT coalesce(r.seconds, 'Infinity') FROM rule AS r WHERE r.state = t.state AND r.name IS NULL LIMIT 1),
        'Infinity'
    ) AND NOT {is_needed}
    FOR UPDATE OF t SKIP LOCKED
),
-- By address: a row that somebody else has just written is passed over, and comes up in the next round.
gone AS (DELETE FROM {schema}.tasks AS t WHERE t.ctid = ANY (ARRAY(SELECT o.tid FROM old AS o)) RETURNING t.seq)
SELECT
    (SELECT count(*) FROM gone) AS deleted, count(*) AS looked, max(p.seq) AS last,
    coalesce(max(p.created_at) > min(c.now) - make_interval(secs => :shortest::float8), true) AS fresh
FROM page AS p CROSS JOIN clock AS c;

-- name: look_for_old_facts
-- The time, if there are facts that were emitted longer ago than so many seconds.
SELECT c.now FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
WHERE EXISTS (
    SELECT FROM {schema}.tasklib_events AS e
    WHERE e.task_id IS NULL AND e.created_at < c.now - make_interval(secs => :seconds::float8)
);

-- name: look_for_live_tasks
-- Look at the next rows in the order of their insertion: how far that goes, and when the oldest that has not ended was
-- submitted.
SELECT count(*) AS looked, max(p.seq) AS last, min(p.created_at) FILTER (WHERE p.completed_at IS NULL) AS oldest
FROM (
    SELECT t.seq, t.created_at, t.completed_at FROM {schema}.tasks AS t
    WHERE t.seq > :after::bigint ORDER BY t.seq LIMIT :limit::integer
) AS p;

-- name: sweep_facts
-- Remove facts that were emitted before a moment, and for which nobody waits.
WITH old AS MATERIALIZED (
    SELECT e.id FROM {schema}.tasklib_events AS e
    WHERE e.task_id IS NULL AND e.created_at < :before::timestamptz AND e.delivered_at IS NOT NULL
        AND NOT EXISTS (SELECT FROM {schema}.tasklib_waits AS w WHERE w.event = e.name)
    ORDER BY e.created_at
    LIMIT :limit::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.tasklib_events AS e WHERE e.id = ANY (ARRAY(SELECT o.id FROM old AS o)) RETURNING e.id;
