-- fragment: key_heads
-- Where tasks of the keys `asked` wait, name by name and priority by priority, found by skipping through their index.
key_name (key, name) AS (
    SELECT a.key, (
        SELECT t.name FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.concurrency_key = a.key AND t.due_at IS NOT NULL ORDER BY t.name LIMIT 1
    )
    FROM asked AS a
    UNION ALL
    SELECT n.key, (
        SELECT t.name FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.concurrency_key = n.key AND t.name > n.name AND t.due_at IS NOT NULL ORDER BY t.name LIMIT 1
    )
    FROM key_name AS n WHERE n.name IS NOT NULL
),
key_priority (key, name, priority) AS (
    SELECT n.key, n.name, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.concurrency_key = n.key AND t.name = n.name AND t.due_at IS NOT NULL ORDER BY t.priority DESC LIMIT 1
    )
    FROM key_name AS n WHERE n.name IS NOT NULL
    UNION ALL
    SELECT p.key, p.name, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.concurrency_key = p.key AND t.name = p.name AND t.priority < p.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM key_priority AS p WHERE p.priority IS NOT NULL
),
key_pair (key, name, priority, due_at) AS MATERIALIZED (
    SELECT p.key, p.name, p.priority, (
        SELECT t.due_at FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.concurrency_key = p.key AND t.name = p.name AND t.priority = p.priority AND t.due_at IS NOT NULL
        ORDER BY t.due_at LIMIT 1
    )
    FROM key_priority AS p WHERE p.priority IS NOT NULL
)

-- fragment: key_room
-- The limit under which each name's tasks of the keys `asked` stand, and how many more of them may run now; as good as
-- any number where there is no limit.  A name with limits of its own is counted by itself, all others of a key together.
key_scope (key, name, scope, most) AS MATERIALIZED (
    SELECT n.key, n.name,
        coalesce((SELECT l.name {key_limit_of}), ''), coalesce((SELECT l.max_running {key_limit_of}), 1)
    FROM key_name AS n WHERE n.name IS NOT NULL
),
key_room (key, scope, room) AS MATERIALIZED (
    SELECT s.key, s.scope, CASE WHEN s.most = 0 THEN 2147483647 ELSE s.most - (
        SELECT count(*) FROM tasks AS t INDEXED BY tasks_slots WHERE {holds_slot}
    ) END
    FROM (SELECT DISTINCT k.key, k.scope, k.most FROM key_scope AS k) AS s
)

-- fragment: key_limit_of
FROM tasklib_key_limits AS l
    WHERE l.name IN (n.name, '') AND l.key IN (n.key, '') ORDER BY l.name DESC, l.key DESC LIMIT 1

-- fragment: holds_slot
t.slot_key = s.key AND CASE WHEN s.scope <> '' THEN t.name = s.scope ELSE NOT EXISTS (
    SELECT 1 FROM tasklib_key_limits AS o WHERE o.name = t.name AND o.key IN (t.slot_key, '')
) END

-- fragment: is_freed_slot
-- Whether the hint says that a slot of its key became free: only such a hint has no name.
h.name = ''

-- name: spread_hints
-- Turn the hints of freed slots into hints under the names of the tasks that wait for them, also of those that are not due:
-- if the clock was set back, they were due before, and their own hints are gone.
INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at)
WITH RECURSIVE
asked (key) AS MATERIALIZED (SELECT h.key FROM tasklib_hints AS h WHERE {is_freed_slot} ORDER BY h.id LIMIT 1000),
{key_heads}
SELECT p.key, p.name, p.priority, max(p.due_at, :now)
FROM key_pair AS p
WHERE p.due_at <= :now OR NOT EXISTS (
    SELECT 1 FROM tasklib_hints AS h
    WHERE h.key = p.key AND h.name = p.name AND h.priority = p.priority AND h.ready_at <= p.due_at
)
ORDER BY p.priority DESC, p.due_at;
DELETE FROM tasklib_hints
WHERE id IN (SELECT h.id FROM tasklib_hints AS h WHERE {is_freed_slot} ORDER BY h.id LIMIT 1000);

-- name: take_keys
-- The keys whose turn it is, best first, no more than :limit and for each name than :caps allows.
WITH RECURSIVE
known AS MATERIALIZED (
    SELECT n.value AS name, min(:limit, coalesce((SELECT c.value FROM json_each(:caps) AS c WHERE c.key = n.value), :limit)) AS cap
    FROM json_each(:names) AS n
    WHERE NOT EXISTS (
        SELECT 1 FROM tasklib_controls AS c WHERE c.name IN ('', n.value) AND c.paused_at IS NOT NULL
    )
),
pair (name, cap, priority) AS (
    SELECT k.name, k.cap, (
        SELECT h.priority FROM tasklib_hints AS h WHERE h.name = k.name ORDER BY h.priority DESC LIMIT 1
    )
    FROM known AS k WHERE k.cap > 0
    UNION ALL
    SELECT p.name, p.cap, (
        SELECT h.priority FROM tasklib_hints AS h WHERE h.name = p.name AND h.priority < p.priority
        ORDER BY h.priority DESC LIMIT 1
    )
    FROM pair AS p WHERE p.priority IS NOT NULL
),
hint AS MATERIALIZED (
    SELECT p.name, p.cap, p.priority, due.value ->> 0 AS key, due.value ->> 1 AS ready_at, due.value ->> 2 AS id
    FROM pair AS p CROSS JOIN json_each((
        SELECT json_group_array(json_array(head.key, head.ready_at, head.id)) FROM (
            SELECT h.key, h.ready_at, h.id FROM tasklib_hints AS h
            WHERE h.name = p.name AND h.priority = p.priority AND h.ready_at <= :now
            ORDER BY h.ready_at, h.id LIMIT 4 * :limit
        ) AS head
    )) AS due
    WHERE p.priority IS NOT NULL
),
-- A key appears once, at its best place.
placed AS (
    SELECT h.*, row_number() OVER (PARTITION BY h.key ORDER BY h.priority DESC, h.ready_at, h.id) AS place FROM hint AS h
),
ranked AS (
    SELECT p.*, row_number() OVER (PARTITION BY p.name ORDER BY p.priority DESC, p.ready_at, p.id) AS rank
    FROM placed AS p WHERE p.place = 1
)
SELECT r.key, 1 AS locked, r.id FROM ranked AS r WHERE r.rank <= r.cap
ORDER BY r.priority DESC, r.ready_at, r.id LIMIT :limit;

-- name: fail_unreadable_keys
-- End the due tasks of hints whose key is no text for good: no claim could ask for them.
-- Only here: PostgreSQL stores no text that is none.
UPDATE tasks
SET state = 'failed', completed_at = :now, next_retry_at = NULL, waits_for = NULL, error = :error, fingerprint = 'UnreadableTask',
    updated_at = :now
WHERE state <> 'running' AND seq IN (
    SELECT t.seq FROM json_each(:ids) AS i CROSS JOIN tasklib_hints AS h ON h.id = i.value
    CROSS JOIN tasks AS t INDEXED BY tasks_keyed ON t.concurrency_key = h.key AND t.name = h.name
        AND t.priority = h.priority AND t.due_at <= :now
);
DELETE FROM tasklib_hints WHERE id IN (SELECT i.value FROM json_each(:ids) AS i);

-- name: find_keyed
-- The tasks of locked keys that may start now: of each key the best, at most :share and as many as have a slot.
WITH RECURSIVE
asked (key) AS MATERIALIZED (SELECT k.value FROM json_each(:keys) AS k),
{key_heads},
{key_room},
candidate AS MATERIALIZED (
    SELECT p.key, p.name, p.priority, due.value ->> 0 AS due_at, due.value ->> 1 AS seq
    FROM key_pair AS p CROSS JOIN json_each((
        SELECT json_group_array(json_array(head.due_at, head.seq)) FROM (
            SELECT t.due_at, t.seq FROM tasks AS t INDEXED BY tasks_keyed
            WHERE t.concurrency_key = p.key AND t.name = p.name AND t.priority = p.priority AND t.due_at <= :now
            ORDER BY t.due_at, t.seq LIMIT :share
        ) AS head
    )) AS due
    WHERE p.due_at <= :now AND p.name IN (SELECT n.value FROM json_each(:names) AS n) AND NOT EXISTS (
        SELECT 1 FROM tasklib_controls AS c WHERE c.name IN ('', p.name) AND c.paused_at IS NOT NULL
    )
),
ranked AS (
    SELECT c.*, s.scope,
        row_number() OVER (PARTITION BY c.key, s.scope ORDER BY c.priority DESC, c.due_at, c.seq) AS rank
    FROM candidate AS c JOIN key_scope AS s ON s.key = c.key AND s.name = c.name
),
free AS (
    SELECT r.key, r.seq, row_number() OVER (PARTITION BY r.key ORDER BY r.priority DESC, r.due_at, r.seq) AS place
    FROM ranked AS r JOIN key_room AS m ON m.key = r.key AND m.scope = r.scope
    WHERE r.rank <= m.room
)
SELECT f.key, f.seq FROM free AS f WHERE f.place <= :share;

-- name: settle_hints
-- Take the hints of keys that were looked at away, and leave one for each name that has more to start.
DELETE FROM tasklib_hints
WHERE key IN (SELECT k.value FROM json_each(:keys) AS k) AND name <> '' AND ready_at <= :now;
INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at)
WITH RECURSIVE
asked (key) AS MATERIALIZED (SELECT k.value FROM json_each(:keys) AS k),
{key_heads},
{key_room}
SELECT p.key, p.name, p.priority, :now
FROM key_pair AS p JOIN key_scope AS s ON s.key = p.key AND s.name = p.name
JOIN key_room AS m ON m.key = s.key AND m.scope = s.scope
WHERE p.due_at <= :now AND m.room > 0
ORDER BY p.priority DESC, p.due_at;

-- name: set_key_limit
-- Let at most so many tasks of a concurrency key, or with the empty key of every other, run at once; 0 is unlimited.
-- With a name those of this name alone, which are then counted apart from the others of their key.
DELETE FROM tasklib_key_limits WHERE name = :name AND key = :key;
INSERT INTO tasklib_key_limits (name, key, max_running) SELECT :name, :key, :count WHERE :count IS NOT NULL;

-- name: hint_waiting
-- Have every key with waiting tasks looked at, or the one given: its limit has changed.
INSERT OR IGNORE INTO tasklib_hints (key, name, priority, ready_at)
WITH RECURSIVE waiting (key) AS (
    SELECT (
        SELECT t.concurrency_key FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL ORDER BY t.concurrency_key LIMIT 1
    )
    WHERE :key = ''
    UNION ALL
    SELECT (
        SELECT t.concurrency_key FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.due_at IS NOT NULL AND t.concurrency_key > w.key ORDER BY t.concurrency_key LIMIT 1
    ) FROM waiting AS w WHERE w.key IS NOT NULL
)
SELECT w.key, '', 0, '' FROM waiting AS w WHERE w.key IS NOT NULL
UNION ALL
SELECT :key, '', 0, '' WHERE :key <> '';

-- name: list_key_limits
-- How many tasks of a key may run at once, by name and key; empty ones are for every other.
SELECT l.name, l.key, l.max_running FROM tasklib_key_limits AS l ORDER BY l.name, l.key;

-- name: get_key_limit
-- How many tasks of one key may run at once beside one of this name, and of which name only if it has limits of its
-- own; 0 is unlimited.
SELECT
    coalesce((SELECT l.name {key_limit_of}), '') AS scope, coalesce((SELECT l.max_running {key_limit_of}), 1) AS count
FROM (SELECT :name AS name, :key AS key) AS n;

-- name: list_slots
-- The running tasks of one key that count against one limit, oldest first, no more than :limit of them.
SELECT h.id
FROM (
    SELECT t.id, t.seq FROM (SELECT :key AS key, :scope AS scope) AS s CROSS JOIN tasks AS t INDEXED BY tasks_slots
    WHERE {holds_slot} LIMIT :limit
) AS h
ORDER BY h.seq;

-- name: find_hints
-- Whether some key may have a task of these names to start now, and in how many seconds the next one may.
-- The first hints of the names, and of slots that became free, are looked at priority by priority.
WITH RECURSIVE pair (name, priority) AS (
    SELECT n.value, (SELECT h.priority FROM tasklib_hints AS h WHERE h.name = n.value ORDER BY h.priority DESC LIMIT 1)
    FROM json_each(json_insert(:names, '$[#]', '')) AS n WHERE NOT {is_paused}
    UNION ALL
    SELECT p.name, (
        SELECT h.priority FROM tasklib_hints AS h WHERE h.name = p.name AND h.priority < p.priority
        ORDER BY h.priority DESC LIMIT 1
    )
    FROM pair AS p WHERE p.priority IS NOT NULL
),
head (ready_at) AS MATERIALIZED (
    SELECT (
        SELECT h.ready_at FROM tasklib_hints AS h WHERE h.name = p.name AND h.priority = p.priority
        ORDER BY h.ready_at LIMIT 1
    )
    FROM pair AS p WHERE p.priority IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM head AS h WHERE h.ready_at <= :now) AS due,
    (SELECT (julianday(min(h.ready_at)) - julianday(:now)) * 86400.0 FROM head AS h WHERE h.ready_at > :now) AS next_in;
