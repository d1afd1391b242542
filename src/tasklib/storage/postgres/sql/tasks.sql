-- fragment: columns
t.id, t.seq, t.name, t.state, t.scheduled_at, t.started_at, t.completed_at, t.created_at, t.updated_at,
    t.next_retry_at, t.locked_until, t.expires_at, t.cancel_requested_at, t.timeout_seconds, t.progress, t.priority,
    t.version, t.attempts, t.retry_count, t.max_retries, t.lost_count, t.args::text AS args, t.kwargs::text AS kwargs,
    t.tags::text AS tags, t.headers::text AS headers, t.result::text AS result, t.history::text AS history, t.log::text AS log,
    t.error, t.progress_message, t.worker_id, t.finished_by, t.unique_key, t.concurrency_key,
    t.waits_for, t.marks

-- fragment: listed_columns
-- The same, with no more of what may be long than so many characters.
t.id, t.seq, t.name, t.state, t.scheduled_at, t.started_at, t.completed_at, t.created_at, t.updated_at,
    t.next_retry_at, t.locked_until, t.expires_at, t.cancel_requested_at, t.timeout_seconds, t.progress, t.priority,
    t.version, t.attempts, t.retry_count, t.max_retries, t.lost_count,
    left(t.args::text, :width::integer) AS args, left(t.kwargs::text, :width::integer) AS kwargs,
    left(t.tags::text, :width::integer) AS tags, left(t.headers::text, :width::integer) AS headers,
    left(t.result::text, :width::integer) AS result, left(t.history::text, :width::integer) AS history,
    left(t.log::text, :width::integer) AS log, left(t.error, :width::integer) AS error,
    left(t.progress_message, :width::integer) AS progress_message,
    t.worker_id, t.finished_by, t.unique_key, t.concurrency_key,
    t.waits_for, t.marks

-- fragment: matches
((:states::jsonb IS NULL AND :delayed::boolean IS NULL AND :retrying::boolean IS NULL AND :suspended::boolean IS NULL)
        OR t.state = ANY (ARRAY(SELECT jsonb_array_elements_text(:states::jsonb)))
        OR (:delayed::boolean AND t.state = 'pending' AND t.due_at > coalesce(:now::timestamptz, now()) AND t.waits_for IS NULL)
        OR (:suspended::boolean AND t.waits_for IS NOT NULL)
        OR (:retrying::boolean AND t.state = 'failed' AND t.completed_at IS NULL))
    AND (:name::text IS NULL OR t.name = :name::text)
    AND (:tags::jsonb IS NULL OR t.tags @> :tags::jsonb)
    AND (:ids::jsonb IS NULL OR t.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)::uuid)))
    AND (:unique_key::text IS NULL OR t.unique_key = :unique_key::text)
    AND (:concurrency_key::text IS NULL OR t.concurrency_key = :concurrency_key::text)
    AND (:fingerprint::text IS NULL OR (t.dead_at IS NOT NULL AND (
        t.fingerprint = :fingerprint::text OR (:fingerprint::text = '' AND t.fingerprint IS NULL)
    )))
    AND (:search::text IS NULL OR strpos(lower(t.kwargs::text), lower(:search::text)) > 0
        OR strpos(lower(t.tags::text), lower(:search::text)) > 0
        OR strpos(lower(coalesce(t.error, '')), lower(:search::text)) > 0)
    AND (:arguments::jsonb IS NULL OR NOT EXISTS (
        SELECT FROM jsonb_to_recordset(:arguments::jsonb) AS a (path text[], value text)
        WHERE a.value IS DISTINCT FROM CASE jsonb_typeof(t.kwargs #> a.path)
            WHEN 'null' THEN 'null' WHEN 'object' THEN NULL WHEN 'array' THEN NULL ELSE t.kwargs #>> a.path
        END
    ))
    AND (:worker::text IS NULL OR t.worker_id = :worker::text OR t.finished_by = :worker::text
        OR t.history @> jsonb_build_array(jsonb_build_object('worker_id', :worker::text)))
    AND (:release::text IS NULL OR t.history @> jsonb_build_array(jsonb_build_object('release', :release::text))
        OR EXISTS (
            SELECT FROM {schema}.tasklib_worker_history AS w
            WHERE w.worker_id = coalesce(t.finished_by, t.worker_id) AND w.release = :release::text
                AND t.started_at BETWEEN w.started_at AND w.ended_at
        ) OR EXISTS (
            SELECT FROM {schema}.tasklib_workers AS w
            WHERE w.worker_id = coalesce(t.finished_by, t.worker_id) AND w.info ->> 'release' = :release::text
                AND t.started_at >= w.started_at
        ))
    AND (:ran_least::float8 IS NULL OR {ran} >= :ran_least::float8)
    AND (:ran_below::float8 IS NULL OR {ran} < :ran_below::float8)
    AND (:waited_least::float8 IS NULL OR {waited} >= :waited_least::float8)
    AND (:waited_below::float8 IS NULL OR {waited} < :waited_below::float8)
    AND (:created_after::timestamptz IS NULL OR t.created_at >= :created_after::timestamptz)
    AND (:created_before::timestamptz IS NULL OR t.created_at < :created_before::timestamptz)
    AND (:completed_after::timestamptz IS NULL OR t.completed_at >= :completed_after::timestamptz)
    AND (:completed_before::timestamptz IS NULL OR t.completed_at < :completed_before::timestamptz)

-- fragment: ran
extract(epoch FROM coalesce(
        t.completed_at, CASE WHEN t.state = 'running' THEN coalesce(:now::timestamptz, now()) END
    ) - t.started_at)

-- fragment: waited
CASE WHEN t.attempts <= 1 THEN extract(epoch FROM t.started_at - greatest(t.scheduled_at, t.created_at)) END

-- fragment: new_columns
id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
    unique_key, concurrency_key, headers, expires_at

-- fragment: new_values
n.id, n.name, coalesce(n.kwargs, 'null'), coalesce(n.run_at AT TIME ZONE 'UTC', c.now + make_interval(secs => coalesce(n.delay, 0))), c.now, c.now,
    n.max_retries, n.timeout_seconds, coalesce(n.priority, 0), coalesce(n.tags, '{}'),
    n.unique_key, n.concurrency_key, n.headers,
    coalesce(n.expires_at AT TIME ZONE 'UTC', c.now + make_interval(secs => n.expires_in))

-- fragment: new_fields
id uuid, name text, kwargs jsonb, run_at timestamp, delay double precision, max_retries integer,
        timeout_seconds double precision, priority integer, tags jsonb, unique_key text, concurrency_key text,
        headers jsonb, expires_at timestamp, expires_in double precision

-- fragment: inserted_one
INSERT INTO {schema}.tasks (
    id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
    concurrency_key, headers, expires_at
)
VALUES (
    :id::uuid, :name::text, :kwargs::jsonb,
    coalesce(
        :run_at::timestamp AT TIME ZONE 'UTC',
        coalesce(:now::timestamptz, now()) + make_interval(secs => :delay::double precision)
    ),
    coalesce(:now::timestamptz, now()), coalesce(:now::timestamptz, now()), :max_retries::integer,
    :timeout_seconds::double precision, :priority::integer, :tags::jsonb, :concurrency_key::text, :headers::jsonb,
    coalesce(
        :expires_at::timestamp AT TIME ZONE 'UTC',
        coalesce(:now::timestamptz, now()) + make_interval(secs => :expires_in::double precision)
    )
)
ON CONFLICT (id) DO NOTHING

-- fragment: inserted
INSERT INTO {schema}.tasks (
    {new_columns}
)
SELECT
    {new_values}
FROM
    (SELECT coalesce(:now::timestamptz, now()) AS now) AS c,
    jsonb_to_recordset(:batch::jsonb) AS n (
        {new_fields}
    )
ON CONFLICT DO NOTHING
RETURNING id, created_at

-- fragment: inserted_batch
INSERT INTO {schema}.tasks (
    id, name, kwargs, scheduled_at, created_at, updated_at, max_retries, timeout_seconds, priority, tags,
    concurrency_key, headers, expires_at
)
SELECT
    (:ids::text || lpad(to_hex(i.number - 1), 4, '0'))::uuid, c.name, i.kwargs, c.scheduled_at, c.now, c.now,
    c.max_retries, c.timeout_seconds, c.priority, c.tags, c.concurrency_key, c.headers, c.expires_at
FROM
    (
        SELECT
            m.now, n.name, coalesce(n.run_at AT TIME ZONE 'UTC', m.now + make_interval(secs => coalesce(n.delay, 0))) AS scheduled_at,
            n.max_retries, n.timeout_seconds, coalesce(n.priority, 0) AS priority, coalesce(n.tags, '{}') AS tags,
            n.concurrency_key, n.headers,
            coalesce(n.expires_at AT TIME ZONE 'UTC', m.now + make_interval(secs => n.expires_in)) AS expires_at
        FROM
            (SELECT coalesce(:now::timestamptz, now()) AS now) AS m,
            jsonb_to_record(:like::jsonb) AS n (
                name text, run_at timestamp, delay double precision, max_retries integer, timeout_seconds double precision,
                priority integer, tags jsonb, concurrency_key text, headers jsonb, expires_at timestamp,
                expires_in double precision
            )
        -- Computed once, not for each row.
        OFFSET 0
    ) AS c,
    jsonb_array_elements(:inputs::jsonb) WITH ORDINALITY AS i (kwargs, number)

-- name: insert_task
-- Store one task without a unique key; if its id exists already, it was stored by the same call.
{inserted_one};

-- name: insert_task_audited
-- The same, and the entry of the audit log about it, in one statement.
WITH stored AS ({inserted_one} RETURNING id, created_at),
entry AS (
    INSERT INTO {schema}.tasklib_audit (at, actor, role, action, target, detail, remote, request_id)
    VALUES (
        coalesce(:now::timestamptz, now()), :actor::text, :role::text, :action::text, :target::text, :detail::jsonb,
        :remote::text, :request_id::text
    )
)
SELECT s.id, s.created_at FROM stored AS s;

-- name: insert_tasks
-- Store new tasks in the order given; one whose id or live unique key exists already is left out of the answer.
{inserted};

-- name: insert_tasks_audited
-- The same, and the entries of the audit log about it, in one statement.
WITH stored AS ({inserted}),
entries AS ({audit_entries})
SELECT s.id, s.created_at FROM stored AS s;

-- name: insert_batch
-- Store tasks that differ in their input only, in the order given; their ids count up.
{inserted_batch};

-- name: insert_batch_again
-- The same, where some may be stored already: looking for them first costs a fifth more.
{inserted_batch}
ON CONFLICT (id) DO NOTHING;

-- fragment: has_expired
t.state <> 'running' AND t.expires_at <= coalesce(:now::timestamptz, now())

-- name: find_live_keys
-- The live task holding each unique key asked for, and the task of each id, whichever exists.
SELECT t.id, t.name, t.live_key, t.state, t.marks, {has_expired} AS expired, k.id AS asked
FROM jsonb_to_recordset(:keys::jsonb) AS k (id uuid, name text, unique_key text)
CROSS JOIN LATERAL (
    SELECT x.id, x.name, x.live_key, x.state, x.marks, x.expires_at FROM {schema}.tasks AS x WHERE x.id = k.id LIMIT 1
) AS t
UNION
SELECT t.id, t.name, t.live_key, t.state, t.marks, {has_expired} AS expired, k.id AS asked
FROM jsonb_to_recordset(:keys::jsonb) AS k (id uuid, name text, unique_key text)
CROSS JOIN LATERAL (
    SELECT x.id, x.name, x.live_key, x.state, x.marks, x.expires_at FROM {schema}.tasks AS x
    WHERE x.name = k.name AND x.live_key = k.unique_key LIMIT 1
) AS t;

-- name: expire_holder
-- End a waiting task whose expiry has passed, as a claim would, so that its unique key is free.
WITH changed AS (
    UPDATE {schema}.tasks AS t
    SET state = 'cancelled', completed_at = c.now, error = 'Expired: not started before expires_at', next_retry_at = NULL,
        waits_for = NULL, updated_at = c.now
    FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
    WHERE t.id = :id::uuid AND t.state <> 'running' AND t.completed_at IS NULL AND t.expires_at <= c.now
    RETURNING t.id, t.watched
)
SELECT CASE WHEN h.watched THEN pg_notify('{channel}', 'done:' || h.id)::text END AS notified FROM changed AS h;

-- name: replace_task
-- Rewrite a waiting task in place under the same id; no row means that it is not waiting any more.
UPDATE {schema}.tasks AS t
SET state = 'pending', next_retry_at = NULL, waits_for = NULL, kwargs = coalesce(n.kwargs, 'null'), max_retries = n.max_retries,
    scheduled_at = coalesce(n.run_at AT TIME ZONE 'UTC', c.now + make_interval(secs => coalesce(n.delay, 0))),
    timeout_seconds = n.timeout_seconds, priority = coalesce(n.priority, 0), tags = coalesce(n.tags, '{}'),
    concurrency_key = n.concurrency_key, headers = n.headers,
    expires_at = coalesce(n.expires_at AT TIME ZONE 'UTC', c.now + make_interval(secs => n.expires_in)),
    attempts = 0, retry_count = 0, lost_count = 0, error = NULL, fingerprint = NULL, updated_at = c.now
FROM
    (SELECT coalesce(:now::timestamptz, now()) AS now) AS c,
    jsonb_to_recordset(:batch::jsonb) AS n (
        id uuid, name text, kwargs jsonb, run_at timestamp, delay double precision, max_retries integer,
        timeout_seconds double precision, priority integer, tags jsonb, unique_key text, concurrency_key text,
        headers jsonb, expires_at timestamp, expires_in double precision
    )
WHERE t.name = n.name AND t.live_key = n.unique_key AND t.due_at IS NOT NULL AND t.marks IS NULL
RETURNING t.id;

-- name: get_task
-- One task by its id.
SELECT {columns} FROM {schema}.tasks AS t WHERE t.id = :id::uuid;

-- name: find_ids
-- The ids between two that end so; a few, because more than one is too many.
SELECT t.id
FROM {schema}.tasks AS t
WHERE t.id BETWEEN :low::uuid AND :high::uuid
  AND right(replace(t.id::text, '-', ''), length(:end::text)) = :end::text
LIMIT 4;

-- name: list_tasks
-- Tasks matching the filter, newest first, from before a position on.
-- plan: custom
SELECT {listed_columns}
FROM {schema}.tasks AS t
WHERE {matches} AND (:before::bigint IS NULL OR t.seq < :before::bigint)
ORDER BY t.seq DESC
LIMIT :limit::integer OFFSET :offset::integer;

-- name: walk_tasks
-- Tasks matching the filter in a range of insertion order, newest first.
-- plan: custom
SELECT {listed_columns}
FROM {schema}.tasks AS t
WHERE {matches} AND t.seq < :before::bigint AND t.seq >= :floor::bigint
ORDER BY t.seq DESC
LIMIT :limit::integer;

-- name: pass_tasks
-- How many tasks match the filter in a range of insertion order, the newest so many at most, and the last of those.
-- plan: custom
SELECT count(*) AS met, min(m.seq) AS last
FROM (
    SELECT t.seq FROM {schema}.tasks AS t
    WHERE {matches} AND t.seq < :before::bigint AND t.seq >= :floor::bigint
    ORDER BY t.seq DESC
    LIMIT :limit::integer
) AS m;

-- name: measure_span
-- The oldest and the newest insertion that are there, and up to which one blocks are known.
SELECT min(t.seq) AS first, max(t.seq) AS last, (SELECT max(b.seq) FROM {schema}.tasklib_stats_position AS b) AS counted
FROM {schema}.tasks AS t;

-- name: find_blocks
-- Below one, the blocks of insertion order that may hold a match by its name and when it was made, newest first.
SELECT s.number
FROM {schema}.tasklib_stats_blocks AS s
WHERE s.number <= :number::bigint
    AND (:name::text IS NULL OR s.names IS NULL OR s.names @> to_jsonb(:name::text))
    AND (:created_after::timestamptz IS NULL OR s.newest >= :created_after::timestamptz)
    AND (:created_before::timestamptz IS NULL OR s.oldest < :created_before::timestamptz)
ORDER BY s.number DESC
LIMIT :limit::integer;

-- name: find_waiting
-- The newest task before a position that waits, found in the indexes of those alone.
SELECT max(w.seq) AS seq
FROM (
    (SELECT t.seq FROM {schema}.tasks AS t
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL AND t.seq < :before::bigint OFFSET 0)
    UNION ALL
    (SELECT t.seq FROM {schema}.tasks AS t
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL AND t.seq < :before::bigint OFFSET 0)
    UNION ALL
    (SELECT t.seq FROM {schema}.tasks AS t WHERE t.waits_for IS NOT NULL AND t.seq < :before::bigint OFFSET 0)
) AS w;

-- name: find_trouble
-- From where on no more than so many failed, as many were cancelled and as many buried before a position, found in the
-- index of those alone.
SELECT max(w.seq) AS seq
FROM jsonb_array_elements_text(:troubles::jsonb) AS k (trouble)
CROSS JOIN LATERAL (
    SELECT x.seq FROM {schema}.tasks AS x
    WHERE x.trouble = k.trouble AND x.seq < :before::bigint
    ORDER BY x.seq DESC
    LIMIT 1 OFFSET :reach::integer
) AS w;

-- name: list_trouble
-- Tasks matching the filter among those that failed, were cancelled or buried, newest first, by the index of those.
-- plan: custom
SELECT {listed_columns}
FROM jsonb_array_elements_text(:troubles::jsonb) AS k (trouble)
CROSS JOIN LATERAL (
    -- Name and fingerprint are in the index, so that others are passed over without being read.
    SELECT t.*
    FROM (
        SELECT x.seq FROM {schema}.tasks AS x
        WHERE x.trouble = k.trouble AND (:name::text IS NULL OR x.name = :name::text)
            AND (coalesce(:fingerprint::text, '') = '' OR x.fingerprint = :fingerprint::text)
            AND x.seq < :before::bigint AND x.seq >= :floor::bigint
        ORDER BY x.seq DESC
    ) AS w
    CROSS JOIN LATERAL (SELECT y.* FROM {schema}.tasks AS y WHERE y.seq = w.seq LIMIT 1) AS t
    WHERE {matches}
    ORDER BY w.seq DESC
    LIMIT :limit::integer + :offset::integer
) AS t
ORDER BY t.seq DESC
LIMIT :limit::integer OFFSET :offset::integer;

-- name: search_trouble
-- The same where every task has to be read to know whether it matches.
-- plan: custom
SELECT {listed_columns}
FROM jsonb_array_elements_text(:troubles::jsonb) AS k (trouble)
CROSS JOIN LATERAL (
    SELECT t.* FROM {schema}.tasks AS t
    WHERE t.trouble = k.trouble AND t.seq < :before::bigint AND t.seq >= :floor::bigint AND {matches}
    ORDER BY t.seq DESC
    LIMIT :limit::integer + :offset::integer
) AS t
ORDER BY t.seq DESC
LIMIT :limit::integer OFFSET :offset::integer;

-- name: list_retrying
-- Tasks matching the filter among those that failed and wait for their next attempt, newest first; found in the index of
-- failures alone.
-- plan: custom
SELECT {listed_columns}
FROM (
    SELECT x.seq FROM {schema}.tasks AS x
    WHERE x.trouble = 'failed' AND x.due_at IS NOT NULL AND x.seq < :before::bigint AND x.seq >= :floor::bigint
    ORDER BY x.seq DESC
) AS w
CROSS JOIN LATERAL (SELECT y.* FROM {schema}.tasks AS y WHERE y.seq = w.seq LIMIT 1) AS t
WHERE {matches}
ORDER BY w.seq DESC
LIMIT :limit::integer OFFSET :offset::integer;

-- name: list_held_tasks
-- Tasks matching the filter among those that workers hold, newest first.
-- plan: custom
SELECT {listed_columns}
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL ({held_task}) AS r
CROSS JOIN LATERAL (SELECT y.* FROM {schema}.tasks AS y WHERE y.seq = r.seq LIMIT 1) AS t
WHERE {matches} AND (:before::bigint IS NULL OR t.seq < :before::bigint)
ORDER BY t.seq DESC
LIMIT :limit::integer OFFSET :offset::integer;

-- name: count_tasks
-- How many tasks match the filter.
-- plan: custom
SELECT count(*) AS count FROM {schema}.tasks AS t WHERE {matches};

-- name: count_failures
-- How many tasks failed for good in one way, or were buried, by the index of those.
-- plan: custom
SELECT count(*) AS count
FROM {schema}.tasks AS t
WHERE t.dead_at IS NOT NULL AND (:name::text IS NULL OR t.name = :name::text)
    AND (t.fingerprint = :fingerprint::text OR (:fingerprint::text = '' AND t.fingerprint IS NULL))
    AND (:troubles::jsonb IS NULL OR t.trouble = ANY (ARRAY(SELECT jsonb_array_elements_text(:troubles::jsonb))));

-- name: count_by_state
-- How many tasks are in each state, by name, with the delayed, the suspended and the retrying apart.
SELECT
    t.name, t.state, count(*) AS count,
    count(*) FILTER (WHERE t.state = 'pending' AND t.due_at > coalesce(:now::timestamptz, now()) AND t.waits_for IS NULL) AS delayed,
    count(t.waits_for) AS suspended,
    count(*) FILTER (WHERE t.state = 'failed' AND t.due_at IS NOT NULL) AS retrying
FROM {schema}.tasks AS t
GROUP BY t.name, t.state;

-- name: watch_task
-- Record that a program waits for the end of a task, so that its end is notified.
UPDATE {schema}.tasks AS t SET watched = true
WHERE t.id = :id::uuid AND NOT t.watched AND t.completed_at IS NULL;

-- name: count_ahead
-- How many due tasks of the names given and without a concurrency key come before one, counted no further than :limit.
-- Priority by priority, so that what is due later is not in the way, however much it is.
WITH RECURSIVE
asked AS MATERIALIZED (SELECT t.priority, t.due_at, t.seq FROM {schema}.tasks AS t WHERE t.id = :id::uuid),
level AS (
    SELECT n.name, head.priority
    FROM asked AS a CROSS JOIN jsonb_array_elements_text(:names::jsonb) AS n (name) CROSS JOIN LATERAL (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.concurrency_key IS NULL AND t.name = n.name COLLATE "C" AND t.priority > a.priority
            AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    ) AS head
    UNION ALL
    SELECT l.name, head.priority
    FROM level AS l CROSS JOIN asked AS a CROSS JOIN LATERAL (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.concurrency_key IS NULL AND t.name = l.name COLLATE "C" AND t.priority < l.priority
            AND t.priority > a.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    ) AS head
)
SELECT count(*) AS count
FROM (
    SELECT 1
    FROM level AS l CROSS JOIN LATERAL (
        SELECT 1 FROM {schema}.tasks AS t
        WHERE t.concurrency_key IS NULL AND t.name = l.name COLLATE "C" AND t.priority = l.priority
            AND t.due_at <= coalesce(:now::timestamptz, now())
        LIMIT :limit::integer
    ) AS higher
    UNION ALL
    SELECT 1
    FROM asked AS a CROSS JOIN jsonb_array_elements_text(:names::jsonb) AS n (name) CROSS JOIN LATERAL (
        SELECT 1 FROM {schema}.tasks AS t
        WHERE t.concurrency_key IS NULL AND t.name = n.name COLLATE "C" AND t.priority = a.priority
            AND t.due_at <= coalesce(:now::timestamptz, now()) AND (t.due_at, t.seq) < (a.due_at, a.seq)
        LIMIT :limit::integer
    ) AS earlier
    LIMIT :limit::integer
) AS ahead;

-- name: count_ahead_in_key
-- How many due tasks of the names given and with the same concurrency key come before one, counted no further than :limit.
-- Priority by priority, so that what is due later is not in the way, however much it is.
WITH RECURSIVE
asked AS MATERIALIZED (SELECT t.priority, t.due_at, t.seq, t.concurrency_key FROM {schema}.tasks AS t WHERE t.id = :id::uuid),
level AS (
    SELECT n.name, head.priority
    FROM asked AS a CROSS JOIN jsonb_array_elements_text(:names::jsonb) AS n (name) CROSS JOIN LATERAL (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.concurrency_key = a.concurrency_key AND t.name = n.name COLLATE "C" AND t.priority > a.priority
            AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    ) AS head
    UNION ALL
    SELECT l.name, head.priority
    FROM level AS l CROSS JOIN asked AS a CROSS JOIN LATERAL (
        SELECT t.priority FROM {schema}.tasks AS t
        WHERE t.concurrency_key = a.concurrency_key AND t.name = l.name COLLATE "C" AND t.priority < l.priority
            AND t.priority > a.priority AND t.due_at IS NOT NULL
        ORDER BY t.priority DESC LIMIT 1
    ) AS head
)
SELECT count(*) AS count
FROM (
    SELECT 1
    FROM asked AS a CROSS JOIN level AS l CROSS JOIN LATERAL (
        SELECT 1 FROM {schema}.tasks AS t
        WHERE t.concurrency_key = a.concurrency_key AND t.name = l.name COLLATE "C" AND t.priority = l.priority
            AND t.due_at <= coalesce(:now::timestamptz, now())
        LIMIT :limit::integer
    ) AS higher
    UNION ALL
    SELECT 1
    FROM asked AS a CROSS JOIN jsonb_array_elements_text(:names::jsonb) AS n (name) CROSS JOIN LATERAL (
        SELECT 1 FROM {schema}.tasks AS t
        WHERE t.concurrency_key = a.concurrency_key AND t.name = n.name COLLATE "C" AND t.priority = a.priority
            AND t.due_at <= coalesce(:now::timestamptz, now()) AND (t.due_at, t.seq) < (a.due_at, a.seq)
        LIMIT :limit::integer
    ) AS earlier
    LIMIT :limit::integer
) AS ahead;

-- name: waiting_names
-- The names of tasks that wait; the indexes are entered once for each name, however many wait under it.
WITH RECURSIVE free (name) AS (
    SELECT * FROM (
        SELECT t.name FROM {schema}.tasks AS t
        WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL ORDER BY t.name LIMIT 1
    ) AS first
    UNION ALL
    SELECT (
        SELECT t.name FROM {schema}.tasks AS t
        WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL AND t.name > f.name ORDER BY t.name LIMIT 1
    ) FROM free AS f WHERE f.name IS NOT NULL
), keyed (name) AS (
    SELECT * FROM (SELECT h.name FROM {schema}.tasklib_hints AS h WHERE h.name > '' ORDER BY h.name LIMIT 1) AS first
    UNION ALL
    SELECT (SELECT h.name FROM {schema}.tasklib_hints AS h WHERE h.name > k.name ORDER BY h.name LIMIT 1)
    FROM keyed AS k WHERE k.name IS NOT NULL
)
SELECT f.name FROM free AS f WHERE f.name IS NOT NULL
UNION SELECT k.name FROM keyed AS k WHERE k.name IS NOT NULL;
