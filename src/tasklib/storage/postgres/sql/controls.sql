-- name: pause
-- Stop starting tasks of one name, or with the empty name of all; running ones finish.
INSERT INTO {schema}.tasklib_controls (name, paused_at, paused_by, reason)
SELECT :name::text, coalesce(:now::timestamptz, now()), :by::text, :reason::text
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce({schema}.tasklib_controls.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
    reason = excluded.reason
RETURNING name;

-- name: resume
-- Start tasks of one name, or with the empty name everything that was paused as a whole, again.
WITH resumed AS (
    UPDATE {schema}.tasklib_controls AS c SET paused_at = NULL, paused_by = NULL, reason = NULL
    WHERE c.name = :name::text AND c.paused_at IS NOT NULL
    RETURNING c.name
)
SELECT r.name, pg_notify('{channel}', 'new')::text AS notified FROM resumed AS r;

-- name: list_pauses
-- What is paused now, by whom and why.
SELECT c.name, c.paused_at, c.paused_by, c.reason
FROM {schema}.tasklib_controls AS c WHERE c.paused_at IS NOT NULL ORDER BY c.name;

-- name: set_rate
-- Let at most so many tasks of one name, or with the empty name of all, start in a second; NULL lifts the limit.
INSERT INTO {schema}.tasklib_controls AS c (name, rate, burst, tokens, refilled_at)
SELECT :name::text, :rate::float8, :burst::float8, coalesce(:burst::float8, greatest(1, :rate::float8)), n.now
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS n
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, burst = excluded.burst, refilled_at = excluded.refilled_at,
    -- What is in the bucket stays, as far as the new one holds it.
    tokens = CASE WHEN excluded.rate IS NULL THEN NULL ELSE least(excluded.tokens, coalesce(
        c.tokens + greatest(0, extract(epoch FROM excluded.refilled_at - c.refilled_at)::float8) * c.rate, excluded.tokens
    )) END
RETURNING c.name, pg_notify('{channel}', 'new')::text AS notified;

-- name: set_max_running
-- Let at most so many tasks of one name, or with the empty name of all, run at once; NULL lifts the limit.
INSERT INTO {schema}.tasklib_controls AS c (name, max_running)
SELECT :name::text, :count::integer
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running
RETURNING c.name, pg_notify('{channel}', 'new')::text AS notified;

-- name: declare_limits
-- Store the limits that code declares, each only if the declaration is not the one last stored: until it changes, what
-- people have set since holds.  A name without a declaration loses the limits of the one it had.
INSERT INTO {schema}.tasklib_controls AS c (name, rate, burst, tokens, refilled_at, max_running, declared)
SELECT g.name, l.rate, l.burst, coalesce(l.burst, greatest(1, l.rate)), coalesce(:now::timestamptz, now()), l.max_running, g.declared
FROM jsonb_to_recordset(:limits::jsonb) AS g (name text, declared jsonb)
CROSS JOIN jsonb_to_record(coalesce(g.declared, '{}')) AS l (rate float8, burst float8, max_running integer)
WHERE g.declared IS NOT NULL OR EXISTS (
    SELECT FROM {schema}.tasklib_controls AS o WHERE o.name = g.name AND o.declared IS NOT NULL
)
ORDER BY g.name
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, burst = excluded.burst, tokens = excluded.tokens, refilled_at = excluded.refilled_at,
    max_running = excluded.max_running, declared = excluded.declared
WHERE c.declared IS DISTINCT FROM excluded.declared
RETURNING c.name, pg_notify('{channel}', 'new')::text AS notified;

-- name: list_limits
-- The limits in force, by name; the empty name is for all.
SELECT c.name, c.rate, c.burst, c.max_running, {bucket} AS tokens, c.declared::text AS declared
FROM {schema}.tasklib_controls AS c CROSS JOIN (SELECT coalesce(:now::timestamptz, now()) AS now) AS clock
WHERE {is_limited}
ORDER BY c.name;

-- name: take_limits
-- Lock the limits under which something of these names is due, until the transaction ends: the claim that holds a limit
-- decides how it is used.  No claim waits: a limit that another one holds is not locked, and its tasks are left waiting.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
-- The server ends this transaction if nothing comes for a while: a worker that is stopped in the middle must not keep its
-- limits and keys, nor others from taking back what it holds.
bound AS MATERIALIZED (SELECT set_config('idle_in_transaction_session_timeout', '10s', true) AS timeout),
limited AS MATERIALIZED (
    SELECT c.name FROM {schema}.tasklib_controls AS c WHERE {is_limited} AND (c.name = '' OR :names::jsonb ? c.name)
),
known AS MATERIALIZED (
    SELECT n.name COLLATE "C" AS name FROM jsonb_array_elements_text(:names::jsonb) AS n (name)
    WHERE EXISTS (SELECT FROM limited AS l WHERE l.name IN ('', n.name))
),
{waiting_pairs},
needed AS MATERIALIZED (
    SELECT l.name FROM limited AS l CROSS JOIN clock
    WHERE EXISTS (SELECT FROM pair AS p WHERE p.due_at <= clock.now AND l.name IN ('', p.name))
        OR EXISTS (SELECT FROM {schema}.tasklib_hints)
),
locked AS MATERIALIZED (
    SELECT c.name, c.rate, c.burst, c.max_running, {bucket} AS tokens, c.declared::text AS declared
    FROM clock CROSS JOIN {schema}.tasklib_controls AS c
    WHERE {is_limited} AND c.name IN (SELECT n.name FROM needed AS n)
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
SELECT n.name, l.name IS NOT NULL AS locked, l.rate, l.burst, l.max_running, l.tokens, l.declared, b.timeout
FROM bound AS b LEFT JOIN needed AS n ON true LEFT JOIN locked AS l ON l.name = n.name;

-- name: count_running
-- How many tasks of each name instances hold.
SELECT t.name, count(*) AS count
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL ({held_task}) AS t
GROUP BY t.name;

-- name: spend_tokens
-- Take one token from the rate of each task's name, and from that of everything.
WITH taken AS MATERIALIZED (
    SELECT t.name, count(*) AS count FROM {schema}.tasks AS t
    WHERE t.seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:seqs::jsonb)::bigint))
    GROUP BY t.name
)
UPDATE {schema}.tasklib_controls AS c
SET tokens = {bucket} - (SELECT sum(k.count) FROM taken AS k WHERE c.name IN ('', k.name)),
    refilled_at = CASE WHEN {is_set_back} THEN clock.now ELSE greatest(clock.now, c.refilled_at) END
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS clock
WHERE c.rate IS NOT NULL AND EXISTS (SELECT FROM taken AS k WHERE c.name IN ('', k.name));

-- fragment: bucket
-- The tokens there are now; a full bucket where the clock was set back, which would else stay empty until it catches up.
CASE WHEN c.rate IS NULL THEN NULL WHEN {is_set_back} THEN coalesce(c.burst, greatest(1, c.rate))
        ELSE least(coalesce(c.burst, greatest(1, c.rate)),
            c.tokens + greatest(0, extract(epoch FROM clock.now - c.refilled_at)::float8) * c.rate) END

-- fragment: is_set_back
-- Whether the bucket was filled later than now, by more than transactions that overlap can explain.
c.refilled_at > clock.now + interval '10 seconds'
