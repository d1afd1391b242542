-- fragment: columns
t.id, t.seq, t.name, t.state, t.scheduled_at, t.started_at, t.completed_at, t.created_at, t.updated_at,
    t.next_retry_at, t.locked_until, t.expires_at, t.cancel_requested_at, t.timeout_seconds, t.progress, t.priority,
    t.version, t.attempts, t.retry_count, t.max_retries, t.lost_count, t.args, t.kwargs, t.tags, t.headers, t.result,
    t.history, t.log, t.error, t.progress_message, t.worker_id, t.finished_by, t.unique_key, t.concurrency_key,
    t.waits_for, t.marks

-- fragment: listed_columns
-- The same, with no more of what may be long than so many characters.
t.id, t.seq, t.name, t.state, t.scheduled_at, t.started_at, t.completed_at, t.created_at, t.updated_at,
    t.next_retry_at, t.locked_until, t.expires_at, t.cancel_requested_at, t.timeout_seconds, t.progress, t.priority,
    t.version, t.attempts, t.retry_count, t.max_retries, t.lost_count,
    substr(t.args, 1, :width) AS args, substr(t.kwargs, 1, :width) AS kwargs,
    substr(t.tags, 1, :width) AS tags, substr(t.headers, 1, :width) AS headers,
    substr(t.result, 1, :width) AS result, substr(t.history, 1, :width) AS history,
    substr(t.log, 1, :width) AS log, substr(t.error, 1, :width) AS error,
    substr(t.progress_message, 1, :width) AS progress_message,
    t.worker_id, t.finished_by, t.unique_key, t.concurrency_key,
    t.waits_for, t.marks

-- fragment: matches
((:states IS NULL AND :delayed IS NULL AND :retrying IS NULL AND :suspended IS NULL)
        OR t.state IN (SELECT s.value FROM json_each(:states) AS s)
        OR (:delayed AND t.state = 'pending' AND t.due_at > :now AND t.waits_for IS NULL)
        OR (:suspended AND t.waits_for IS NOT NULL)
        OR (:retrying AND t.state = 'failed' AND t.completed_at IS NULL))
    AND (:name IS NULL OR t.name = :name)
    AND (:tags IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_tree(:tags) AS want
        LEFT JOIN json_tree(t.tags) AS have ON have.fullkey = want.fullkey AND have.type = want.type
            AND (want.type = 'object' OR have.value IS want.value)
        WHERE have.fullkey IS NULL
    ))
    AND (:ids IS NULL OR t.id IN (SELECT i.value FROM json_each(:ids) AS i))
    AND (:unique_key IS NULL OR t.unique_key = :unique_key)
    AND (:concurrency_key IS NULL OR t.concurrency_key = :concurrency_key)
    AND (:fingerprint IS NULL OR (t.dead_at IS NOT NULL AND coalesce(t.fingerprint, '') = :fingerprint))
    AND (:search IS NULL OR instr(lower(t.kwargs), lower(:search)) > 0 OR instr(lower(t.tags), lower(:search)) > 0
        OR instr(lower(coalesce(t.error, '')), lower(:search)) > 0)
    AND (:arguments IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:arguments) AS a
        WHERE NOT EXISTS (
            SELECT 1 FROM json_each(a.value -> 'paths') AS p
            WHERE a.value ->> 'value' = CASE json_type(t.kwargs, p.value)
                WHEN 'text' THEN t.kwargs ->> p.value WHEN 'object' THEN NULL WHEN 'array' THEN NULL
                ELSE t.kwargs -> p.value
            END
        )
    ))
    AND (:worker IS NULL OR t.worker_id = :worker OR t.finished_by = :worker
        OR EXISTS (SELECT 1 FROM json_each(t.history) AS h WHERE h.value ->> 'worker_id' = :worker))
    AND (:release IS NULL
        OR EXISTS (SELECT 1 FROM json_each(t.history) AS h WHERE h.value ->> 'release' = :release)
        OR EXISTS (
            SELECT 1 FROM tasklib_worker_history AS w
            WHERE w.worker_id = coalesce(t.finished_by, t.worker_id) AND w.release = :release
                AND t.started_at BETWEEN w.started_at AND w.ended_at
        ) OR EXISTS (
            SELECT 1 FROM tasklib_workers AS w
            WHERE w.worker_id = coalesce(t.finished_by, t.worker_id) AND w.info ->> 'release' = :release
                AND t.started_at >= w.started_at
        ))
    AND (:ran_least IS NULL OR {ran} >= :ran_least)
    AND (:ran_below IS NULL OR {ran} < :ran_below)
    AND (:waited_least IS NULL OR {waited} >= :waited_least)
    AND (:waited_below IS NULL OR {waited} < :waited_below)
    AND (:created_after IS NULL OR t.created_at >= :created_after)
    AND (:created_before IS NULL OR t.created_at < :created_before)
    AND (:completed_after IS NULL OR t.completed_at >= :completed_after)
    AND (:completed_before IS NULL OR t.completed_at < :completed_before)

-- fragment: ran
(julianday(coalesce(t.completed_at, CASE WHEN t.state = 'running' THEN :now END)) - julianday(t.started_at)) * 86400.0

-- fragment: waited
CASE WHEN t.attempts <= 1
        THEN (julianday(t.started_at) - julianday(max(t.scheduled_at, t.created_at))) * 86400.0 END

-- fragment: new_columns
id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
    unique_key, concurrency_key, headers, expires_at

-- fragment: new_values
n.value ->> 'id', n.value ->> 'name', n.value -> 'kwargs',
    coalesce(n.value ->> 'run_at', CASE
        WHEN coalesce(n.value ->> 'delay', 0) = 0 THEN :now
        ELSE strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', n.value ->> 'delay'))
    END),
    :now, :now, n.value ->> 'max_retries', n.value ->> 'timeout_seconds', coalesce(n.value ->> 'priority', 0),
    coalesce(n.value -> 'tags', '{}'), n.value ->> 'unique_key', n.value ->> 'concurrency_key',
    n.value -> 'headers',
    coalesce(n.value ->> 'expires_at', CASE WHEN n.value ->> 'expires_in' IS NOT NULL THEN
        strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', n.value ->> 'expires_in'))
    END)

-- fragment: inserted_one
INSERT INTO tasks (
    id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
    concurrency_key, headers, expires_at
)
VALUES (
    :id, :name, :kwargs,
    coalesce(:run_at, CASE
        WHEN :delay = 0 THEN :now
        ELSE strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :delay))
    END),
    :now, :now, :max_retries, :timeout_seconds, :priority, :tags, :concurrency_key, :headers,
    coalesce(:expires_at, CASE WHEN :expires_in IS NOT NULL THEN
        strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :expires_in))
    END)
)
ON CONFLICT (id) DO NOTHING

-- fragment: inserted
INSERT INTO tasks (
    {new_columns}
)
SELECT
    {new_values}
FROM json_each(:batch) AS n
WHERE true
ON CONFLICT DO NOTHING
RETURNING id, created_at

-- fragment: inserted_batch
WITH c AS MATERIALIZED (
    SELECT
        :like ->> 'name' AS name,
        coalesce(:like ->> 'run_at', CASE
            WHEN coalesce(:like ->> 'delay', 0) = 0 THEN :now
            ELSE strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :like ->> 'delay'))
        END) AS scheduled_at,
        :like ->> 'max_retries' AS max_retries, :like ->> 'timeout_seconds' AS timeout_seconds,
        coalesce(:like ->> 'priority', 0) AS priority, coalesce(:like -> 'tags', '{}') AS tags,
        :like ->> 'concurrency_key' AS concurrency_key, :like -> 'headers' AS headers,
        coalesce(:like ->> 'expires_at', CASE WHEN :like ->> 'expires_in' IS NOT NULL THEN
            strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :like ->> 'expires_in'))
        END) AS expires_at
)
INSERT INTO tasks (
    id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
    concurrency_key, headers, expires_at
)
-- The value is JSON text, because the input of a function is an object.
SELECT
    :ids || printf('%04x', i.key), c.name, i.value, c.scheduled_at, :now, :now, c.max_retries, c.timeout_seconds, c.priority,
    c.tags, c.concurrency_key, c.headers, c.expires_at
FROM c CROSS JOIN json_each(:inputs) AS i
WHERE true

-- name: insert_task
-- Store one task without a unique key; if its id exists already, it was stored by the same call.
{inserted_one};

-- name: insert_task_audited
-- The same, and the entry of the audit log about it.
INSERT INTO tasklib_audit (at, actor, role, action, target, detail, remote, request_id)
VALUES (:now, :actor, :role, :action, :target, :detail, :remote, :request_id);
{inserted_one} RETURNING id, created_at;

-- name: insert_tasks
-- Store new tasks in the order given; one whose id or live unique key exists already is left out of the answer.
{inserted};

-- name: insert_tasks_audited
-- The same, and the entries of the audit log about it.
{audit_entries};
{inserted};

-- name: insert_batch
-- Store tasks that differ in their input only, in the order given; their ids count up.
{inserted_batch};

-- name: insert_batch_again
-- The same, where some may be stored already.
{inserted_batch}
ON CONFLICT (id) DO NOTHING;

-- fragment: has_expired
t.state <> 'running' AND t.expires_at <= :now

-- name: find_live_keys
-- The live task holding each unique key asked for, and the task of each id, whichever exists.
SELECT t.id, t.name, t.live_key, t.state, t.marks, {has_expired} AS expired, k.value ->> 'id' AS asked
FROM json_each(:keys) AS k
JOIN tasks AS t ON t.id = k.value ->> 'id'
UNION
SELECT t.id, t.name, t.live_key, t.state, t.marks, {has_expired} AS expired, k.value ->> 'id' AS asked
FROM json_each(:keys) AS k
JOIN tasks AS t ON t.name = k.value ->> 'name' AND t.live_key = k.value ->> 'unique_key';

-- name: expire_holder
-- End a waiting task whose expiry has passed, as a claim would, so that its unique key is free.
UPDATE tasks
SET state = 'cancelled', completed_at = :now, error = 'Expired: not started before expires_at', next_retry_at = NULL,
    waits_for = NULL, updated_at = :now
WHERE id = :id AND state <> 'running' AND completed_at IS NULL AND expires_at <= :now;

-- name: replace_task
-- Rewrite a waiting task in place under the same id; no row means that it is not waiting any more.
UPDATE tasks
SET state = 'pending', next_retry_at = NULL, waits_for = NULL, kwargs = n.value -> 'kwargs', max_retries = n.value ->> 'max_retries',
    scheduled_at = coalesce(n.value ->> 'run_at', CASE
        WHEN coalesce(n.value ->> 'delay', 0) = 0 THEN :now
        ELSE strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', n.value ->> 'delay'))
    END),
    timeout_seconds = n.value ->> 'timeout_seconds', priority = coalesce(n.value ->> 'priority', 0),
    tags = coalesce(n.value -> 'tags', '{}'), concurrency_key = n.value ->> 'concurrency_key',
    headers = n.value -> 'headers',
    expires_at = coalesce(n.value ->> 'expires_at', CASE WHEN n.value ->> 'expires_in' IS NOT NULL THEN
        strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', n.value ->> 'expires_in'))
    END),
    attempts = 0, retry_count = 0, lost_count = 0, error = NULL, fingerprint = NULL, updated_at = :now
FROM json_each(:batch) AS n
WHERE tasks.name = n.value ->> 'name' AND tasks.live_key = n.value ->> 'unique_key' AND tasks.due_at IS NOT NULL
    AND tasks.marks IS NULL
RETURNING tasks.id;

-- name: get_task
-- One task by its id.
SELECT {columns} FROM tasks AS t WHERE t.id = :id;

-- name: find_ids
-- The ids between two that end so; a few, because more than one is too many.
SELECT t.id
FROM tasks AS t
WHERE t.id BETWEEN :low AND :high
  AND (:end = '' OR substr(replace(t.id, '-', ''), -length(:end)) = :end)
LIMIT 4;

-- name: list_tasks
-- Tasks matching the filter, newest first, from before a position on.
SELECT {listed_columns}
FROM tasks AS t
WHERE {matches} AND t.seq < coalesce(:before, 9223372036854775807)
ORDER BY t.seq DESC
LIMIT :limit OFFSET :offset;

-- name: walk_tasks
-- Tasks matching the filter in a range of insertion order, newest first.
SELECT {listed_columns}
FROM tasks AS t
WHERE {matches} AND t.seq < :before AND t.seq >= :floor
ORDER BY t.seq DESC
LIMIT :limit;

-- name: pass_tasks
-- How many tasks match the filter in a range of insertion order, the newest so many at most, and the last of those.
SELECT count(*) AS met, min(m.seq) AS last
FROM (
    SELECT t.seq FROM tasks AS t
    WHERE {matches} AND t.seq < :before AND t.seq >= :floor
    ORDER BY t.seq DESC
    LIMIT :limit
) AS m;

-- name: measure_span
-- The oldest and the newest insertion that are there, and up to which one blocks are known.
SELECT (SELECT min(t.seq) FROM tasks AS t) AS first, (SELECT max(t.seq) FROM tasks AS t) AS last,
    (SELECT max(b.seq) FROM tasklib_stats_position AS b) AS counted;

-- name: find_blocks
-- Below one, the blocks of insertion order that may hold a match by its name and when it was made, newest first.
SELECT s.number
FROM tasklib_stats_blocks AS s
WHERE s.number <= :number
    AND (:name IS NULL OR s.names IS NULL OR EXISTS (SELECT 1 FROM json_each(s.names) AS e WHERE e.value = :name))
    AND (:created_after IS NULL OR s.newest >= :created_after)
    AND (:created_before IS NULL OR s.oldest < :created_before)
ORDER BY s.number DESC
LIMIT :limit;

-- name: find_waiting
-- The newest task before a position that waits, found in the indexes of those alone.
SELECT max(w.seq) AS seq
FROM (
    SELECT t.seq FROM tasks AS t INDEXED BY tasks_claim
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL AND t.seq < :before
    UNION ALL
    SELECT t.seq FROM tasks AS t INDEXED BY tasks_keyed
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL AND t.seq < :before
    UNION ALL
    SELECT t.seq FROM tasks AS t INDEXED BY tasks_suspended WHERE t.waits_for IS NOT NULL AND t.seq < :before
) AS w;

-- name: find_trouble
-- From where on no more than so many failed, as many were cancelled and as many buried before a position, found in the
-- index of those alone.
SELECT max((
    SELECT t.seq FROM tasks AS t INDEXED BY tasks_trouble
    WHERE t.trouble = k.value AND t.trouble IS NOT NULL AND t.seq < :before
    ORDER BY t.seq DESC
    LIMIT 1 OFFSET :reach
)) AS seq
FROM json_each(:troubles) AS k;

-- fragment: failures
SELECT {listed_columns}
FROM tasks AS t INDEXED BY tasks_trouble
WHERE t.trouble IN (SELECT k.value FROM json_each(:troubles) AS k) AND t.trouble IS NOT NULL AND {matches}
    AND t.seq < :before AND t.seq >= :floor
ORDER BY t.seq DESC
LIMIT :limit OFFSET :offset

-- name: list_trouble
-- Tasks matching the filter among those that failed, were cancelled or buried, newest first, by the index of those.
{failures};

-- name: search_trouble
-- The same where every task has to be read to know whether it matches; here one way serves both.
{failures};

-- name: list_retrying
-- Tasks matching the filter among those that failed and wait for their next attempt, newest first, by the index of failures.
SELECT {listed_columns}
FROM tasks AS t INDEXED BY tasks_trouble
WHERE t.trouble = 'failed' AND t.due_at IS NOT NULL AND {matches} AND t.seq < :before AND t.seq >= :floor
ORDER BY t.seq DESC
LIMIT :limit OFFSET :offset;

-- name: list_held_tasks
-- Tasks matching the filter among those that workers hold, newest first.
SELECT {listed_columns}
FROM tasklib_claims AS h
CROSS JOIN json_each(h.seqs) AS held
JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
WHERE {matches} AND t.seq < coalesce(:before, 9223372036854775807)
ORDER BY t.seq DESC
LIMIT :limit OFFSET :offset;

-- name: count_tasks
-- How many tasks match the filter.
SELECT count(*) AS count FROM tasks AS t WHERE {matches};

-- name: count_failures
-- How many tasks failed for good in one way, or were buried, by the index of those.
SELECT count(*) AS count
FROM tasks AS t INDEXED BY tasks_dead
WHERE t.dead_at IS NOT NULL AND (:name IS NULL OR t.name = :name) AND coalesce(t.fingerprint, '') = :fingerprint
    AND (:troubles IS NULL OR t.trouble IN (SELECT k.value FROM json_each(:troubles) AS k));

-- name: count_by_state
-- How many tasks are in each state, by name, with the delayed, the suspended and the retrying apart.
SELECT
    t.name, t.state, count(*) AS count,
    count(*) FILTER (WHERE t.state = 'pending' AND t.due_at > :now AND t.waits_for IS NULL) AS delayed,
    count(t.waits_for) AS suspended,
    count(*) FILTER (WHERE t.state = 'failed' AND t.due_at IS NOT NULL) AS retrying
FROM tasks AS t
GROUP BY t.name, t.state;

-- name: watch_task
-- Differs by necessity: nothing is notified, a waiting program reads whenever the file has changed.
SELECT t.id FROM tasks AS t WHERE t.id = :id;

-- name: count_ahead
-- How many due tasks of the names given and without a concurrency key come before one, counted no further than :limit.
-- Priority by priority, so that what is due later is not in the way, however much it is.  IN instead of = keeps SQLite
-- from reading the whole table for a Bloom filter first, which it does once it has statistics.
WITH RECURSIVE
asked AS MATERIALIZED (SELECT t.priority, t.due_at, t.seq FROM tasks AS t WHERE t.id = :id),
level (name, priority) AS (
    SELECT n.value, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_claim
        WHERE t.concurrency_key IS NULL AND t.name = n.value AND t.priority > a.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM asked AS a CROSS JOIN json_each(:names) AS n
    UNION ALL
    SELECT l.name, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_claim
        WHERE t.concurrency_key IS NULL AND t.name = l.name AND t.priority < l.priority
            AND t.priority > a.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM level AS l CROSS JOIN asked AS a
    WHERE l.priority IS NOT NULL
)
SELECT count(*) AS count
FROM (
    SELECT 1
    FROM level AS l CROSS JOIN tasks AS t INDEXED BY tasks_claim ON t.concurrency_key IS NULL
        AND t.name IN (SELECT l.name) AND t.priority IN (SELECT l.priority) AND t.due_at <= :now
    UNION ALL
    SELECT 1
    FROM asked AS a CROSS JOIN json_each(:names) AS n
    CROSS JOIN tasks AS t INDEXED BY tasks_claim ON t.concurrency_key IS NULL AND t.name IN (SELECT n.value)
        AND t.priority IN (SELECT a.priority) AND t.due_at <= :now AND (t.due_at < a.due_at OR (t.due_at = a.due_at AND t.seq < a.seq))
    LIMIT :limit
) AS ahead;

-- name: count_ahead_in_key
-- How many due tasks of the names given and with the same concurrency key come before one, counted no further than :limit.
-- Priority by priority, so that what is due later is not in the way, however much it is.  IN instead of = keeps SQLite
-- from reading the whole table for a Bloom filter first, which it does once it has statistics.
WITH RECURSIVE
asked AS MATERIALIZED (SELECT t.priority, t.due_at, t.seq, t.concurrency_key FROM tasks AS t WHERE t.id = :id),
level (name, priority) AS (
    SELECT n.value, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.concurrency_key = a.concurrency_key AND t.name = n.value AND t.priority > a.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM asked AS a CROSS JOIN json_each(:names) AS n
    UNION ALL
    SELECT l.name, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_keyed
        WHERE t.concurrency_key = a.concurrency_key AND t.name = l.name AND t.priority < l.priority
            AND t.priority > a.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM level AS l CROSS JOIN asked AS a
    WHERE l.priority IS NOT NULL
)
SELECT count(*) AS count
FROM (
    SELECT 1
    FROM asked AS a CROSS JOIN level AS l CROSS JOIN tasks AS t INDEXED BY tasks_keyed ON t.concurrency_key IN (SELECT a.concurrency_key)
        AND t.name IN (SELECT l.name) AND t.priority IN (SELECT l.priority) AND t.due_at <= :now
    UNION ALL
    SELECT 1
    FROM asked AS a CROSS JOIN json_each(:names) AS n
    CROSS JOIN tasks AS t INDEXED BY tasks_keyed ON t.concurrency_key IN (SELECT a.concurrency_key) AND t.name IN (SELECT n.value)
        AND t.priority IN (SELECT a.priority) AND t.due_at <= :now AND (t.due_at < a.due_at OR (t.due_at = a.due_at AND t.seq < a.seq))
    LIMIT :limit
) AS ahead;

-- name: waiting_names
-- The names of tasks that wait; the indexes are entered once for each name, however many wait under it.
WITH RECURSIVE free (name) AS (
    SELECT * FROM (
        SELECT t.name FROM tasks AS t
        WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL ORDER BY t.name LIMIT 1
    ) AS first
    UNION ALL
    SELECT (
        SELECT t.name FROM tasks AS t
        WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL AND t.name > f.name ORDER BY t.name LIMIT 1
    ) FROM free AS f WHERE f.name IS NOT NULL
), keyed (name) AS (
    SELECT * FROM (SELECT h.name FROM tasklib_hints AS h WHERE h.name > '' ORDER BY h.name LIMIT 1) AS first
    UNION ALL
    SELECT (SELECT h.name FROM tasklib_hints AS h WHERE h.name > k.name ORDER BY h.name LIMIT 1)
    FROM keyed AS k WHERE k.name IS NOT NULL
)
SELECT f.name FROM free AS f WHERE f.name IS NOT NULL
UNION SELECT k.name FROM keyed AS k WHERE k.name IS NOT NULL;
