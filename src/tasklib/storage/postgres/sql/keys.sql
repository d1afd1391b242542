-- fragment: key_heads
-- Where tasks of the keys `asked` wait, name by name and priority by priority, found by skipping through their index.
key_name AS (
    SELECT a.key, head.name
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT t.name FROM {schema}.tasks AS t
        WHERE t.concurrency_key = a.key AND t.due_at IS NOT NULL ORDER BY t.name LIMIT 1
    ) AS head
    UNION ALL
    SELECT n.key, head.name
    FROM key_name AS n CROSS JOIN LATERAL (
        SELECT t.name FROM {schema}.tasks AS t
        WHERE t.concurrency_key = n.key AND t.name > n.name AND t.due_at IS NOT NULL ORDER BY t.name LIMIT 1
    ) AS head
),
key_pair AS (
    SELECT n.key, n.name, head.priority, head.due_at
    FROM key_name AS n CROSS JOIN LATERAL (
        SELECT t.priority, t.due_at FROM {schema}.tasks AS t
        WHERE t.concurrency_key = n.key AND t.name = n.name AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC, t.due_at LIMIT 1
    ) AS head
    UNION ALL
    SELECT p.key, p.name, head.priority, head.due_at
    FROM key_pair AS p CROSS JOIN LATERAL (
        SELECT t.priority, t.due_at FROM {schema}.tasks AS t
        WHERE t.concurrency_key = p.key AND t.name = p.name AND t.priority < p.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC, t.due_at LIMIT 1
    ) AS head
)

-- fragment: key_room
-- The limit under which each name's tasks of the keys `asked` stand, and how many more of them may run now; NULL for
-- any number.  A name with limits of its own is counted by itself, all others of a key together.
key_scope AS MATERIALIZED (
    SELECT n.key, n.name, coalesce(l.name, '') AS scope, coalesce(l.max_running, 1) AS most
    FROM key_name AS n LEFT JOIN LATERAL ({key_limit_of}) AS l ON true
),
key_room AS MATERIALIZED (
    SELECT s.key, s.scope, CASE WHEN s.most > 0 THEN s.most - (
        SELECT count(*) FROM (SELECT FROM {schema}.tasks AS t WHERE {holds_slot} LIMIT s.most) AS held
    ) END AS room
    FROM (SELECT DISTINCT k.key, k.scope, k.most FROM key_scope AS k) AS s
)

-- fragment: key_limit_of
SELECT l.name, l.max_running FROM {schema}.tasklib_key_limits AS l
    WHERE l.name IN (n.name, '') AND l.key IN (n.key, '') ORDER BY l.name DESC, l.key DESC LIMIT 1

-- fragment: holds_slot
t.slot_key = s.key AND CASE WHEN s.scope <> '' THEN t.name = s.scope ELSE NOT EXISTS (
    SELECT FROM {schema}.tasklib_key_limits AS o WHERE o.name = t.name AND o.key IN (t.slot_key, '')
) END

-- fragment: is_freed_slot
-- Whether the hint says that a slot of its key became free: only such a hint has no name.
h.name = ''

-- name: spread_hints
-- Turn the hints of freed slots into hints under the names of the tasks that wait for them, also of those that are not due:
-- if the clock was set back, they were due before, and their own hints are gone.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
freed AS (
    DELETE FROM {schema}.tasklib_hints AS d
    WHERE d.ctid = ANY (ARRAY(
        SELECT h.ctid FROM {schema}.tasklib_hints AS h WHERE {is_freed_slot} LIMIT 1000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING d.key
),
asked AS MATERIALIZED (SELECT DISTINCT f.key FROM freed AS f),
{key_heads}
INSERT INTO {schema}.tasklib_hints (key, name, priority, ready_at)
SELECT p.key, p.name, p.priority, greatest(p.due_at, c.now)
FROM key_pair AS p CROSS JOIN clock AS c
WHERE p.due_at <= c.now OR NOT EXISTS (
    SELECT FROM {schema}.tasklib_hints AS h
    WHERE h.key = p.key AND h.name = p.name AND h.priority = p.priority AND h.ready_at <= p.due_at
)
ORDER BY p.priority DESC, p.due_at;

-- name: take_keys
-- The keys whose turn it is, best first, no more than :limit and for each name than :caps allows; each is locked until
-- the transaction ends, unless another claim has it and decides on it.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
known AS MATERIALIZED (
    SELECT n.name COLLATE "C" AS name, least(:limit::integer, (:caps::jsonb ->> n.name)::integer) AS cap
    FROM jsonb_array_elements_text(:names::jsonb) AS n (name)
    WHERE NOT EXISTS (
        SELECT FROM {schema}.tasklib_controls AS c WHERE c.name IN ('', n.name) AND c.paused_at IS NOT NULL
    )
),
pair AS (
    SELECT k.name, k.cap, head.priority
    FROM known AS k CROSS JOIN LATERAL (
        SELECT h.priority FROM {schema}.tasklib_hints AS h WHERE h.name = k.name ORDER BY h.priority DESC LIMIT 1
    ) AS head
    WHERE k.cap > 0
    UNION ALL
    SELECT p.name, p.cap, head.priority
    FROM pair AS p CROSS JOIN LATERAL (
        SELECT h.priority FROM {schema}.tasklib_hints AS h WHERE h.name = p.name AND h.priority < p.priority
        ORDER BY h.priority DESC LIMIT 1
    ) AS head
),
hint AS MATERIALIZED (
    SELECT p.name, p.cap, p.priority, due.key, due.ready_at, due.id
    FROM pair AS p CROSS JOIN clock CROSS JOIN LATERAL (
        SELECT h.key, h.ready_at, h.id FROM {schema}.tasklib_hints AS h
        WHERE h.name = p.name AND h.priority = p.priority AND h.ready_at <= clock.now
        ORDER BY h.ready_at, h.id LIMIT 4 * p.cap
    ) AS due
),
-- A key appears once, at its best place.
first AS (
    SELECT DISTINCT ON (h.key) h.key, h.name, h.cap, h.priority, h.ready_at, h.id
    FROM hint AS h ORDER BY h.key, h.priority DESC, h.ready_at, h.id
),
ranked AS (
    SELECT f.*, row_number() OVER (PARTITION BY f.name ORDER BY f.priority DESC, f.ready_at, f.id) AS rank FROM first AS f
),
chosen AS MATERIALIZED (
    SELECT r.key, r.priority, r.ready_at, r.id FROM ranked AS r WHERE r.rank <= r.cap
    ORDER BY r.priority DESC, r.ready_at, r.id LIMIT :limit::integer
)
SELECT c.key, pg_try_advisory_xact_lock(hashtextextended('{channel}:' || c.key, 0)) AS locked
FROM chosen AS c
ORDER BY c.priority DESC, c.ready_at, c.id;

-- name: find_keyed
-- The tasks of locked keys that may start now: of each key the best, at most :share and as many as have a slot.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
asked AS MATERIALIZED (SELECT k.key COLLATE "C" AS key FROM jsonb_array_elements_text(:keys::jsonb) AS k (key)),
known AS MATERIALIZED (
    SELECT n.name COLLATE "C" AS name
    FROM jsonb_array_elements_text(:names::jsonb) AS n (name)
    WHERE NOT EXISTS (
        SELECT FROM {schema}.tasklib_controls AS c WHERE c.name IN ('', n.name) AND c.paused_at IS NOT NULL
    )
),
{key_heads},
{key_room},
candidate AS MATERIALIZED (
    SELECT p.key, p.name, p.priority, due.due_at, due.seq
    FROM key_pair AS p JOIN known AS k ON k.name = p.name CROSS JOIN clock CROSS JOIN LATERAL (
        SELECT t.due_at, t.seq FROM {schema}.tasks AS t
        WHERE t.concurrency_key = p.key AND t.name = p.name AND t.priority = p.priority AND t.due_at <= clock.now
        ORDER BY t.due_at, t.seq LIMIT :share::integer
    ) AS due
    WHERE p.due_at <= clock.now
),
ranked AS (
    SELECT c.*, s.scope,
        row_number() OVER (PARTITION BY c.key, s.scope ORDER BY c.priority DESC, c.due_at, c.seq) AS rank
    FROM candidate AS c JOIN key_scope AS s ON s.key = c.key AND s.name = c.name
),
free AS (
    SELECT r.key, r.seq, row_number() OVER (PARTITION BY r.key ORDER BY r.priority DESC, r.due_at, r.seq) AS place
    FROM ranked AS r JOIN key_room AS m ON m.key = r.key AND m.scope = r.scope
    WHERE m.room IS NULL OR r.rank <= m.room
)
SELECT f.key, f.seq FROM free AS f WHERE f.place <= :share::integer;

-- name: settle_hints
-- Take the hints of keys that were looked at away, and leave one for each name that has more to start.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
asked AS MATERIALIZED (SELECT k.key COLLATE "C" AS key FROM jsonb_array_elements_text(:keys::jsonb) AS k (key)),
gone AS (
    DELETE FROM {schema}.tasklib_hints AS h
    USING clock AS c
    WHERE h.ctid = ANY (ARRAY(
        SELECT old.ctid FROM asked AS a CROSS JOIN clock AS c CROSS JOIN LATERAL (
            SELECT o.ctid FROM {schema}.tasklib_hints AS o
            WHERE o.key = a.key AND o.name <> '' AND o.ready_at <= c.now LIMIT 10000
        ) AS old
    ))
),
{key_heads},
{key_room}
INSERT INTO {schema}.tasklib_hints (key, name, priority, ready_at)
SELECT p.key, p.name, p.priority, c.now
FROM key_pair AS p JOIN key_scope AS s ON s.key = p.key AND s.name = p.name
JOIN key_room AS m ON m.key = s.key AND m.scope = s.scope CROSS JOIN clock AS c
WHERE p.due_at <= c.now AND (m.room IS NULL OR m.room > 0)
ORDER BY p.priority DESC, p.due_at;

-- name: set_key_limit
-- Let at most so many tasks of a concurrency key, or with the empty key of every other, run at once; 0 is unlimited.
-- With a name those of this name alone, which are then counted apart from the others of their key.
WITH stored AS (
    INSERT INTO {schema}.tasklib_key_limits AS l (name, key, max_running)
    SELECT :name::text, :key::text, :count::integer WHERE :count::integer IS NOT NULL
    ON CONFLICT (name, key) DO UPDATE SET max_running = excluded.max_running
),
forgotten AS (
    DELETE FROM {schema}.tasklib_key_limits AS l
    WHERE l.name = :name::text AND l.key = :key::text AND :count::integer IS NULL
)
SELECT pg_notify('{channel}', 'new')::text AS notified;

-- name: hint_waiting
-- Have every key with waiting tasks looked at, or the one given: its limit has changed.
WITH RECURSIVE waiting AS (
    SELECT (
        SELECT t.concurrency_key FROM {schema}.tasks AS t
        WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL ORDER BY t.concurrency_key LIMIT 1
    ) AS key
    WHERE :key::text = ''
    UNION ALL
    SELECT (
        SELECT t.concurrency_key FROM {schema}.tasks AS t
        WHERE t.due_at IS NOT NULL AND t.concurrency_key > w.key ORDER BY t.concurrency_key LIMIT 1
    ) FROM waiting AS w WHERE w.key IS NOT NULL
)
INSERT INTO {schema}.tasklib_hints (key, name, priority, ready_at)
SELECT w.key, '', 0, now() FROM waiting AS w WHERE w.key IS NOT NULL
UNION ALL
SELECT :key::text, '', 0, now() WHERE :key::text <> '';

-- name: list_key_limits
-- How many tasks of a key may run at once, by name and key; empty ones are for every other.
SELECT l.name, l.key, l.max_running FROM {schema}.tasklib_key_limits AS l ORDER BY l.name, l.key;

-- name: get_key_limit
-- How many tasks of one key may run at once beside one of this name, and of which name only if it has limits of its
-- own; 0 is unlimited.
SELECT coalesce(l.name, '') AS scope, coalesce(l.max_running, 1) AS count
FROM (SELECT :name::text COLLATE "C" AS name, :key::text COLLATE "C" AS key) AS n
LEFT JOIN LATERAL ({key_limit_of}) AS l ON true;

-- name: list_slots
-- The running tasks of one key that count against one limit, oldest first, no more than :limit of them.
SELECT h.id
FROM (SELECT :key::text COLLATE "C" AS key, :scope::text COLLATE "C" AS scope) AS s CROSS JOIN LATERAL (
    SELECT t.id, t.seq FROM {schema}.tasks AS t WHERE {holds_slot} LIMIT :limit::integer
) AS h
ORDER BY h.seq;

-- name: find_hints
-- Whether some key may have a task of these names to start now, and in how many seconds the next one may.
-- The first hints of the names, and of slots that became free, are looked at priority by priority.  A free slot counts at
-- once: its time is the server's, and the clock of this statement may be behind it.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
known AS MATERIALIZED (
    SELECT n.name COLLATE "C" AS name FROM jsonb_array_elements_text(:names::jsonb || '[""]') AS n (name)
    WHERE NOT EXISTS (
        SELECT FROM {schema}.tasklib_controls AS c WHERE c.name IN ('', n.name) AND c.paused_at IS NOT NULL
    )
),
head AS (
    SELECT k.name, first.priority, first.ready_at
    FROM known AS k CROSS JOIN LATERAL (
        SELECT h.priority, h.ready_at FROM {schema}.tasklib_hints AS h
        WHERE h.name = k.name ORDER BY h.priority DESC, h.ready_at LIMIT 1
    ) AS first
    UNION ALL
    SELECT p.name, next.priority, next.ready_at
    FROM head AS p CROSS JOIN LATERAL (
        SELECT h.priority, h.ready_at FROM {schema}.tasklib_hints AS h
        WHERE h.name = p.name AND h.priority < p.priority ORDER BY h.priority DESC, h.ready_at LIMIT 1
    ) AS next
)
SELECT coalesce(bool_or(h.ready_at <= c.now OR {is_freed_slot}), false) AS due,
    extract(epoch FROM min(h.ready_at) FILTER (WHERE h.ready_at > c.now) - min(c.now))::float8 AS next_in
FROM clock AS c CROSS JOIN head AS h;
