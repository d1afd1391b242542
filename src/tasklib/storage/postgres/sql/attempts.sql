-- name: claim_plain
-- Lease due tasks as claim_tasks does where nothing but priority and time decides; else take nothing and say so.
-- Most claims are such, and most of a small claim is the making ready of a large plan.  Nothing is locked, and so
-- nothing written, while nothing is due.
-- Only here: SQLite makes statements ready in no time.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
{control},
known AS (
    SELECT n.name COLLATE "C" AS name FROM jsonb_array_elements_text(:names::jsonb) AS n (name)
    WHERE NOT EXISTS (SELECT FROM control)
),
{waiting_pairs},
place AS MATERIALIZED (
    SELECT p.name, p.priority, p.due_at AS due, 0::bigint AS seq FROM pair AS p CROSS JOIN clock AS c WHERE p.due_at <= c.now
),
{claim_from_places}
SELECT
    {claimed_tasks} AS tasks,
    {is_plain} AS plain,
    (SELECT count(*) FROM quota) AS seen,
    (SELECT count(*) FROM picked) AS locked,
    -- Where there is much to go on with, a look at everything is not much more.
    (SELECT {places_json} FROM place AS p {last_picked} HAVING count(*) <= 16) AS last,
    {is_registered} AS registered,
    least({next_due_in}, (
        -- Where something is due, the next after it.
        SELECT extract(epoch FROM min(later.due_at) - min(c.now))::float8
        FROM place AS p CROSS JOIN clock AS c CROSS JOIN LATERAL (
            SELECT t.due_at FROM {schema}.tasks AS t
            WHERE t.name = p.name AND t.priority = p.priority AND t.due_at > c.now AND t.concurrency_key IS NULL
            ORDER BY t.due_at LIMIT 1
        ) AS later
    )) AS next_due_in,
    (SELECT extract(epoch FROM c.now)::float8 FROM clock AS c) AS now;

-- name: claim_lone
-- Lease the best due task alone, as claim_plain would, for a worker that is notified while it has nothing to do: there is
-- nearly always this one.  Most of a small claim is the making ready of its plan, and this has two thirds of the other's.
-- No row says that it is not enough.  What is due beside it, or next, is told by `next_due_in`.
-- Only here: SQLite makes statements ready in no time.
WITH RECURSIVE
known AS (
    SELECT n.name COLLATE "C" AS name FROM jsonb_array_elements_text(:names::jsonb) AS n (name)
    WHERE NOT EXISTS (SELECT FROM {schema}.tasklib_controls AS c WHERE {is_switched})
        AND NOT EXISTS (SELECT FROM {schema}.tasklib_hints)
),
{waiting_pairs},
quota AS MATERIALIZED (
    SELECT p.name, p.priority, p.due_at, p.seq FROM pair AS p WHERE p.due_at <= {moment}
    ORDER BY p.priority DESC, p.due_at, p.seq LIMIT 1
),
{me},
picked AS MATERIALIZED (
    SELECT t.ctid AS tid FROM {schema}.tasks AS t
    WHERE EXISTS (SELECT FROM me) AND t.seq = (SELECT q.seq FROM quota AS q) AND t.due_at <= {moment}
        AND t.concurrency_key IS NULL AND (t.expires_at <= {moment}) IS NOT TRUE
    FOR NO KEY UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE {schema}.tasks AS t SET {leased}
    FROM (SELECT {moment} AS now) AS c WHERE t.ctid = (SELECT p.tid FROM picked AS p)
    RETURNING t.seq, t.version, {claimed_json} AS json
),
held AS (
    UPDATE {schema}.tasklib_claims AS c
    SET seqs = translate(:held_seqs::text, '[]', '{}')::bigint[] || k.seq,
        versions = translate(:held_versions::text, '[]', '{}')::bigint[] || k.version
    FROM claimed AS k WHERE c.instance = :instance::uuid
)
SELECT
    k.json AS tasks,
    extract(epoch FROM least(
        (SELECT min(p.due_at) FROM pair AS p WHERE p.seq <> k.seq),
        (
            SELECT later.due_at FROM quota AS q CROSS JOIN LATERAL (
                SELECT t.due_at FROM {schema}.tasks AS t
                WHERE t.name = q.name AND t.priority = q.priority AND t.due_at IS NOT NULL AND t.concurrency_key IS NULL
                    AND (t.due_at, t.seq) > (q.due_at, q.seq)
                ORDER BY t.due_at, t.seq LIMIT 1
            ) AS later
        )
    ) - {moment})::float8 AS next_due_in,
    extract(epoch FROM {moment})::float8 AS now
FROM claimed AS k;

-- name: claim_next
-- Go on from where the last plain claim left off, among the names and priorities that had something due then.  What that
-- claim and those before it took is still in the index for a while: to walk past all of it again and again would cost
-- more than the claim.
-- Only here: SQLite makes statements ready in no time.
WITH clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
{control},
place AS MATERIALIZED (
    SELECT p.name COLLATE "C" AS name, p.priority, p.due, p.seq
    FROM jsonb_to_recordset(:after::jsonb) AS p (name text, priority integer, due timestamptz, seq bigint)
    WHERE NOT EXISTS (SELECT FROM control)
),
{claim_from_places}
SELECT
    {claimed_tasks} AS tasks,
    {is_plain} AS plain,
    (SELECT {places_json} FROM place AS p {last_picked}) AS last,
    {is_registered} AS registered,
    (SELECT extract(epoch FROM c.now)::float8 FROM clock AS c) AS now;

-- name: claim_woken
-- Lease tasks that were woken a moment ago, and no others: claims that go on from where the last one left off do not come
-- by them, and they come before new work of their priority.  Those of a lower one than is being claimed wait for their turn.
-- Only here: SQLite makes statements ready in no time.
WITH clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
{control},
quota AS MATERIALIZED (
    SELECT t.seq
    FROM {schema}.tasks AS t CROSS JOIN clock
    WHERE t.seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:woken::jsonb)::bigint)) AND t.due_at <= clock.now
        AND t.concurrency_key IS NULL AND t.priority >= :priority::integer AND :names::jsonb ? t.name
        AND NOT EXISTS (SELECT FROM control)
    ORDER BY t.priority DESC, t.due_at, t.seq LIMIT :limit::integer
),
{me},
picked AS MATERIALIZED (
    SELECT own.* FROM me CROSS JOIN (
        SELECT t.seq, t.ctid AS tid, t.due_at, t.expires_at <= clock.now AS expired
        FROM {schema}.tasks AS t CROSS JOIN clock
        WHERE t.seq = ANY (ARRAY(SELECT q.seq FROM quota AS q)) AND t.due_at <= clock.now AND t.concurrency_key IS NULL
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS own
    LIMIT :limit::integer
),
{lease_picked}
SELECT
    {claimed_tasks} AS tasks,
    {is_plain} AS plain,
    {is_registered} AS registered,
    (SELECT extract(epoch FROM c.now)::float8 FROM clock AS c) AS now;

-- name: claim_tasks
-- Lease up to :limit due tasks of the names given to one worker, in order of priority, due time and insertion: of each
-- name no more than :caps allows, of one with a limit only if :limits says that this transaction holds it (take_limits),
-- and of those with a concurrency key only :keyed (take_keys).
-- The best candidates over all (name, priority) pairs decide how many to take from each, and only that many rows are
-- locked: rows that are finished, not yet due or of other names are never visited.  The update finds its rows by their
-- physical address, which the lock keeps valid; one that somebody else has written since this statement began has another
-- than it can see, and is left to the next claim.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
known AS MATERIALIZED (
    SELECT n.name COLLATE "C" AS name, (:caps::jsonb ->> n.name)::integer AS cap, EXISTS (
        SELECT FROM {schema}.tasklib_controls AS c
        WHERE c.name IN ('', n.name) AND {is_limited} AND NOT :limits::jsonb ? c.name
    ) AS blocked
    FROM jsonb_array_elements_text(:names::jsonb) AS n (name)
    WHERE NOT EXISTS (
        SELECT FROM {schema}.tasklib_controls AS c WHERE c.name IN ('', n.name) AND c.paused_at IS NOT NULL
    )
),
{waiting_pairs},
due AS MATERIALIZED (
    SELECT p.name, p.priority, k.cap, k.blocked
    FROM clock CROSS JOIN pair AS p JOIN known AS k ON k.name = p.name WHERE p.due_at <= clock.now
),
keyed AS MATERIALIZED (
    SELECT t.name, t.priority, t.due_at, t.seq, k.cap, k.blocked
    FROM clock CROSS JOIN {schema}.tasks AS t JOIN known AS k ON k.name = t.name
    WHERE t.seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:keyed::jsonb)::bigint)) AND t.due_at <= clock.now
),
candidate AS MATERIALIZED (
    SELECT d.name, d.priority, d.cap, head.due_at, head.seq, NULL::bigint AS keyed
    FROM clock CROSS JOIN due AS d CROSS JOIN LATERAL (
        SELECT t.due_at, t.seq FROM {schema}.tasks AS t
        WHERE t.name = d.name AND t.priority = d.priority AND t.due_at <= clock.now AND t.concurrency_key IS NULL
        ORDER BY t.due_at, t.seq LIMIT least(:limit::integer, d.cap)
    ) AS head
    WHERE NOT d.blocked
    UNION ALL
    SELECT k.name, k.priority, k.cap, k.due_at, k.seq, k.seq FROM keyed AS k WHERE NOT k.blocked
    ORDER BY priority DESC, due_at, seq LIMIT :limit::integer
),
-- A name's cap holds over all its tasks together: the best use it up first.
quota AS MATERIALIZED (
    SELECT r.name, r.priority, r.keyed, count(*) AS share
    FROM (
        SELECT c.*, row_number() OVER (PARTITION BY c.name ORDER BY c.priority DESC, c.due_at, c.seq) AS rank
        FROM candidate AS c
    ) AS r
    WHERE r.cap IS NULL OR r.rank <= r.cap
    GROUP BY r.name, r.priority, r.keyed
),
{me},
picked AS MATERIALIZED (
    SELECT head.seq, head.tid, head.due_at
    FROM me CROSS JOIN clock CROSS JOIN quota AS q CROSS JOIN LATERAL (
        SELECT t.seq, t.ctid AS tid, t.due_at FROM {schema}.tasks AS t
        WHERE t.name = q.name AND t.priority = q.priority AND t.due_at <= clock.now AND t.concurrency_key IS NULL
        ORDER BY t.due_at, t.seq LIMIT q.share FOR NO KEY UPDATE SKIP LOCKED
    ) AS head
    WHERE q.keyed IS NULL
    UNION ALL
    SELECT own.seq, own.tid, own.due_at
    FROM me CROSS JOIN (
        SELECT t.seq, t.ctid AS tid, t.due_at FROM {schema}.tasks AS t CROSS JOIN clock
        WHERE t.seq = ANY (ARRAY(SELECT q.keyed FROM quota AS q WHERE q.keyed IS NOT NULL))
            AND t.due_at <= clock.now AND t.concurrency_key IS NOT NULL
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS own
    LIMIT :limit::integer
),
claimed AS (
    -- A task past its expiry is cancelled here instead of run, and spends no attempt.
    UPDATE {schema}.tasks AS t
    SET state = CASE WHEN t.expires_at <= c.now THEN 'cancelled' ELSE 'running' END,
        completed_at = CASE WHEN t.expires_at <= c.now THEN c.now END,
        error = CASE WHEN t.expires_at <= c.now THEN 'Expired: not started before expires_at' ELSE t.error END,
        attempts = CASE WHEN t.expires_at <= c.now THEN t.attempts ELSE {next_attempt} END,
        max_retries = {retries_in_force},
        started_at = CASE WHEN t.expires_at <= c.now THEN t.started_at ELSE c.now END,
        worker_id = CASE WHEN t.expires_at <= c.now THEN NULL ELSE :worker_id::text END,
        locked_until = CASE WHEN t.expires_at <= c.now THEN NULL ELSE c.now + make_interval(secs => :lease::float8) END,
        version = {next_version}, next_retry_at = NULL, waits_for = NULL, updated_at = c.now
    FROM clock AS c
    WHERE t.ctid = ANY (ARRAY(SELECT p.tid FROM picked AS p))
    RETURNING t.id, t.seq, t.version, t.priority, t.state = 'cancelled' AND t.watched AS awaited,
        CASE WHEN t.state = 'running' THEN {claimed_json} END AS json
),
held AS ({note_held}),
expired AS MATERIALIZED (
    SELECT pg_notify('{channel}', 'done:' || k.id) FROM claimed AS k WHERE k.awaited
)
SELECT
    {claimed_tasks} AS tasks,
    (SELECT count(*) FROM candidate) AS seen,
    -- Read, because a CTE that is not read is not run.
    (SELECT count(*) FROM expired) AS expired,
    {is_registered} AS registered,
    EXISTS (SELECT FROM {schema}.tasklib_hints) AS hints,
    EXISTS (SELECT FROM {schema}.tasklib_controls AS c WHERE {is_switched}) AS switched,
    EXISTS (
        SELECT FROM {schema}.tasklib_controls AS c WHERE {is_limited} AND (c.name = '' OR :names::jsonb ? c.name)
    ) AS limited,
    -- Something is due under a limit that this transaction does not hold: look again at once.
    EXISTS (SELECT FROM due AS d WHERE d.blocked) OR EXISTS (SELECT FROM keyed AS k WHERE k.blocked) AS blocked,
    {next_due_in} AS next_due_in,
    (SELECT extract(epoch FROM c.now)::float8 FROM clock AS c) AS now;

-- name: look_around
-- Whether a claim of these names may take something, and whether events or groups wait for somebody.  Only reads, so that
-- an idle worker costs little; a pause, a limit or a concurrency key leaves the decision to the claim.
WITH RECURSIVE
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now),
known AS (SELECT n.name COLLATE "C" AS name FROM jsonb_array_elements_text(:names::jsonb) AS n (name)),
{waiting_pairs}
SELECT
    EXISTS (SELECT FROM pair AS p CROSS JOIN clock AS c WHERE p.due_at <= c.now)
        OR EXISTS (SELECT FROM {schema}.tasklib_controls AS c WHERE {is_switched})
        OR EXISTS (SELECT FROM {schema}.tasklib_hints) OR NOT {is_registered} AS may_claim,
    {next_due_in} AS next_due_in,
    EXISTS (SELECT FROM {schema}.tasklib_events AS e WHERE e.delivered_at IS NULL) AS events,
    EXISTS (SELECT FROM {schema}.tasklib_tallies) OR EXISTS (
        SELECT FROM {schema}.tasklib_groups AS g WHERE g.stopped_at IS NOT NULL AND g.cleared_at IS NULL
    ) AS groups;

-- fragment: control
-- Whether anything but priority and time decides: a pause, a limit or a concurrency key.
control AS MATERIALIZED (
    SELECT 1 FROM {schema}.tasklib_controls AS c WHERE {is_switched}
    UNION ALL SELECT 1 FROM {schema}.tasklib_hints LIMIT 1
)

-- fragment: waiting_pairs
-- The (name, priority) pairs of `known` names that wait, each with its first task, found by skipping through the claim
-- index.
pair AS (
    SELECT k.name, head.priority, head.due_at, head.seq
    FROM known AS k CROSS JOIN LATERAL (
        SELECT t.priority, t.due_at, t.seq FROM {schema}.tasks AS t
        WHERE t.name = k.name AND t.due_at IS NOT NULL AND t.concurrency_key IS NULL
        ORDER BY t.priority DESC, t.due_at, t.seq LIMIT 1
    ) AS head
    UNION ALL
    SELECT p.name, head.priority, head.due_at, head.seq
    FROM pair AS p CROSS JOIN LATERAL (
        SELECT t.priority, t.due_at, t.seq FROM {schema}.tasks AS t
        WHERE t.name = p.name AND t.priority < p.priority AND t.due_at IS NOT NULL AND t.concurrency_key IS NULL
        ORDER BY t.priority DESC, t.due_at, t.seq LIMIT 1
    ) AS head
)

-- fragment: claim_from_places
-- Lease the best tasks after each `place`.  One place alone needs no comparison with others, which costs as much as
-- reading its rows once more.
candidate AS MATERIALIZED (
    SELECT p.name, p.priority
    FROM place AS p CROSS JOIN clock CROSS JOIN LATERAL (
        SELECT t.due_at, t.seq FROM {schema}.tasks AS t
        WHERE t.name = p.name AND t.priority = p.priority AND t.due_at <= clock.now AND t.concurrency_key IS NULL
            AND (t.due_at, t.seq) > (p.due, p.seq)
        ORDER BY t.due_at, t.seq LIMIT :limit::integer
    ) AS due
    WHERE (SELECT count(*) FROM place) > 1
    ORDER BY p.priority DESC, due.due_at, due.seq LIMIT :limit::integer
),
quota AS MATERIALIZED (
    SELECT c.name, c.priority, count(*) AS share FROM candidate AS c GROUP BY c.name, c.priority
    UNION ALL
    SELECT p.name, p.priority, :limit::integer FROM place AS p WHERE (SELECT count(*) FROM place) = 1
),
{me},
picked AS MATERIALIZED (
    SELECT q.name, q.priority, due.*
    FROM me CROSS JOIN quota AS q JOIN place AS p ON p.name = q.name AND p.priority = q.priority
    CROSS JOIN clock CROSS JOIN LATERAL (
        SELECT t.seq, t.ctid AS tid, t.due_at, t.expires_at <= clock.now AS expired FROM {schema}.tasks AS t
        WHERE t.name = p.name AND t.priority = p.priority AND t.due_at <= clock.now AND t.concurrency_key IS NULL
            AND (t.due_at, t.seq) > (p.due, p.seq)
        ORDER BY t.due_at, t.seq LIMIT q.share FOR NO KEY UPDATE SKIP LOCKED
    ) AS due
    LIMIT :limit::integer
),
{lease_picked}

-- fragment: lease_picked
claimed AS (
    UPDATE {schema}.tasks AS t
    SET {leased}
    FROM clock AS c
    WHERE t.ctid = ANY (ARRAY(SELECT p.tid FROM picked AS p WHERE NOT EXISTS (SELECT FROM picked AS e WHERE e.expired)))
    RETURNING t.seq, t.version, t.priority, {claimed_json} AS json
),
held AS ({note_held})

-- fragment: leased
state = 'running', attempts = {next_attempt}, version = {next_version}, started_at = c.now,
        max_retries = {retries_in_force},
        locked_until = c.now + make_interval(secs => :lease::float8), worker_id = :worker_id::text,
        next_retry_at = NULL, waits_for = NULL, updated_at = c.now

-- fragment: moment
coalesce(:now::timestamptz, now())

-- fragment: me
-- An instance that was declared dead has lost its row here, and claims nothing; nor does a claim that comes late, after
-- its instance has looked for what it took.
me AS MATERIALIZED (
    SELECT i.instance FROM {schema}.tasklib_claims AS i
    WHERE i.instance = :instance::uuid AND i.generation = :generation::integer AND EXISTS (SELECT FROM quota)
    FOR NO KEY UPDATE
)

-- fragment: is_limited
(c.rate IS NOT NULL OR c.max_running IS NOT NULL)

-- fragment: is_switched
(c.paused_at IS NOT NULL OR {is_limited})

-- fragment: is_plain
NOT EXISTS (SELECT FROM control) AND NOT EXISTS (SELECT FROM picked AS p WHERE p.expired)

-- fragment: is_registered
EXISTS (SELECT FROM {schema}.tasklib_claims AS i WHERE i.instance = :instance::uuid)

-- fragment: next_due_in
(
        SELECT extract(epoch FROM min(p.due_at) - min(c.now))::float8 FROM pair AS p CROSS JOIN clock AS c
        WHERE p.due_at > c.now
    )

-- fragment: next_attempt
least(t.attempts, 1999999999) + 1

-- fragment: next_version
-- Also larger than what a row has that was copied or written by hand; than 2^52 not, for every client must be able to
-- read it and to count on: there the sequence alone has never given it to this row.
greatest(nextval($name${schema}.tasklib_versions$name$), CASE WHEN t.version < 4503599627370496 THEN t.version + 1 END)

-- fragment: retries_in_force
CASE WHEN t.max_retries >= 0 THEN t.max_retries
            ELSE coalesce((:retries::jsonb ->> t.name)::integer, :default_retries::integer) END

-- fragment: claimed_tasks
(
        SELECT string_agg(k.json, E',\n' ORDER BY k.priority DESC, p.due_at, k.seq)
        FROM claimed AS k JOIN picked AS p ON p.seq = k.seq
    )

-- fragment: places_json
json_agg(json_build_object('name', p.name, 'priority', p.priority, 'due', coalesce(l.due_at, p.due), 'seq', coalesce(l.seq, p.seq)))::text

-- fragment: last_picked
LEFT JOIN LATERAL (
        SELECT k.due_at, k.seq FROM picked AS k WHERE k.name = p.name AND k.priority = p.priority
        ORDER BY k.due_at DESC, k.seq DESC LIMIT 1
    ) AS l ON true

-- fragment: note_held
    UPDATE {schema}.tasklib_claims AS c
    SET seqs = translate(:held_seqs::text, '[]', '{}')::bigint[] || taken.seqs,
        versions = translate(:held_versions::text, '[]', '{}')::bigint[] || taken.versions
    FROM (SELECT array_agg(k.seq) AS seqs, array_agg(k.version) AS versions FROM claimed AS k) AS taken
    WHERE c.instance = :instance::uuid AND taken.seqs IS NOT NULL

-- fragment: claimed_json
concat('["', t.id, '",', t.seq, ',', t.version, ',', t.attempts, ',', t.max_retries, ',',
        date_part('epoch', t.created_at), ',', to_json(t.name), ',', t.kwargs, ',',
        CASE WHEN t.scheduled_at = t.created_at AND t.retry_count = 0 AND t.lost_count = 0 AND t.priority = 0
            AND t.tags = '{}' AND num_nonnulls(t.timeout_seconds, t.headers, t.unique_key, t.concurrency_key, t.expires_at) = 0
            THEN coalesce(t.marks::text, 'null')
            ELSE json_build_array(date_part('epoch', t.scheduled_at), t.retry_count, t.lost_count, t.priority, t.tags,
                t.timeout_seconds, t.headers, t.unique_key, t.concurrency_key, t.expires_at, t.marks)::text
        END, ']')

-- name: complete_tasks
-- End attempts in success; an attempt that is not the current one changes nothing and is left out of the answer.
-- The batch is sorted by id, so that two batches lock rows in the same order.  Its ids are also given as an array: no
-- plan, however old the statistics, can then find the rows in another way than one by one through the primary key.
WITH {completions},
done AS (UPDATE {schema}.tasks AS t SET {completed} {of_completions} RETURNING t.id, t.watched)
{ids_completed};

-- name: complete_members
-- The same for children that workflows wait for.  How many of each group have ended is written once for all of them; the
-- trigger, which does so for one at a time, leaves out those whose mark is flipped.
-- Only here: triggers of SQLite cost next to nothing.
WITH {completions},
done AS (
    UPDATE {schema}.tasks AS t
    SET {completed},
        marks = CASE WHEN t.group_id IS NOT NULL AND t.marks & 32 = 0 THEN t.marks # 64 ELSE t.marks END
    {of_completions}
    RETURNING t.id, t.watched, CASE WHEN t.marks & 32 = 0 THEN t.group_id END AS group_id
),
counted AS (
    INSERT INTO {schema}.tasklib_tallies (group_id, ended)
    SELECT d.group_id, count(*) FROM done AS d WHERE d.group_id IS NOT NULL GROUP BY d.group_id
)
{ids_completed};

-- fragment: completions
batch AS MATERIALIZED (
    SELECT b.* FROM jsonb_to_recordset(:batch::jsonb) AS b (
        id uuid, version bigint, result jsonb, started_ago double precision, ended_ago double precision,
        progress double precision, message text
    )
)

-- fragment: completed
state = 'completed', result = e.result, completed_at = c.now - make_interval(secs => e.ended_ago),
        started_at = c.now - make_interval(secs => e.started_ago), updated_at = c.now, finished_by = t.worker_id,
        worker_id = NULL, locked_until = NULL, error = NULL, cancel_requested_at = NULL,
        progress = coalesce(e.progress, t.progress),
        progress_message = CASE WHEN e.progress IS NULL THEN t.progress_message ELSE e.message END

-- fragment: of_completions
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c, batch AS e
    WHERE t.id = ANY (ARRAY(SELECT b.id FROM batch AS b)) AND t.id = e.id AND t.version = e.version AND t.state = 'running'

-- fragment: ids_completed
SELECT
    string_agg(d.id::text, ',') AS ids,
    count(CASE WHEN d.watched THEN pg_notify('{channel}', 'done:' || d.id)::text END) AS notified
FROM done AS d

-- name: end_attempts
-- End attempts in any way but success: retry later, give up, snooze, release, cancel or lose; fenced like complete_tasks.
-- Whatever does not end the task for good cancels it if a person has asked for that meanwhile.  A release leaves a task
-- whose last attempt failed waiting for its retry again, which is due now.  One that suspends itself waits on, unless
-- one of the steps it waits for is open no more; where that can happen, `lock_tasks` comes before.
WITH batch AS MATERIALIZED (
    SELECT b.* FROM jsonb_to_recordset(:batch::jsonb) AS b (
        id uuid, version bigint, state text, terminal boolean, delay double precision, refund integer,
        retried integer, lost integer, released boolean, error text, fingerprint text, outcome text, summary text, started_ago double precision,
        ended_ago double precision, progress double precision, message text, waits_for text, keys jsonb
    )
),
done AS (
    UPDATE {schema}.tasks AS t
    SET state = CASE WHEN {is_asked_to_end} THEN 'cancelled' WHEN {is_retry_given_back} THEN 'failed' ELSE e.state END,
        completed_at = CASE WHEN {is_final} THEN c.now - make_interval(secs => e.ended_ago) END,
        next_retry_at = CASE WHEN NOT {is_final}
            AND (e.keys IS NULL OR {waits_still})
            THEN c.now + make_interval(secs => CASE WHEN {is_retry_given_back} THEN 0 ELSE e.delay END) END,
        waits_for = CASE WHEN NOT {is_final} AND (e.keys IS NULL OR {waits_still}) THEN e.waits_for END,
        expires_at = CASE WHEN e.waits_for IS NULL THEN t.expires_at END,
        started_at = coalesce(c.now - make_interval(secs => e.started_ago), t.started_at),
        attempts = t.attempts - e.refund,
        retry_count = t.retry_count + CASE WHEN {is_final} THEN 0 ELSE e.retried END,
        lost_count = least(t.lost_count, 1999999999) + e.lost,
        error = coalesce(e.error, t.error), fingerprint = coalesce(e.fingerprint, t.fingerprint),
        history = CASE WHEN e.outcome IS NULL THEN t.history ELSE {append_history} END,
        progress = CASE WHEN {is_final} THEN coalesce(e.progress, t.progress) END,
        progress_message = CASE
            WHEN {is_final} AND e.progress IS NOT NULL THEN e.message
            WHEN {is_final} THEN t.progress_message
        END,
        finished_by = CASE WHEN {is_final} THEN t.worker_id END,
        updated_at = c.now, worker_id = NULL, locked_until = NULL
    FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c, batch AS e
    WHERE t.id = ANY (ARRAY(SELECT b.id FROM batch AS b)) AND t.id = e.id AND t.version = e.version AND t.state = 'running'
    RETURNING t.id, t.watched, t.completed_at
)
SELECT d.id,
    CASE WHEN d.watched AND d.completed_at IS NOT NULL THEN pg_notify('{channel}', 'done:' || d.id)::text END AS notified
FROM done AS d;

-- fragment: is_final
(e.terminal OR t.cancel_requested_at IS NOT NULL)

-- fragment: waits_still
NOT EXISTS (
                SELECT FROM {schema}.tasklib_steps AS s
                WHERE s.task_id = t.id AND s.key = ANY (ARRAY(SELECT jsonb_array_elements_text(e.keys))) AND s.state <> 'open'
            )

-- fragment: is_asked_to_end
NOT e.terminal AND t.cancel_requested_at IS NOT NULL

-- fragment: is_retry_given_back
(e.released AND t.retry_count > 0 AND t.history -> -1 ->> 'outcome' <> 'lost')

-- name: find_recorded
-- Which of these attempts were the last of their tasks and ended like this, as the rows show it.
-- What would have gone on is cancelled where a person asked for that.
SELECT e.id
FROM jsonb_to_recordset(:batch::jsonb) AS e (id uuid, version bigint, state text, outcome text)
CROSS JOIN LATERAL (
    SELECT x.version, x.state, x.completed_at, x.cancel_requested_at, x.history
    FROM {schema}.tasks AS x WHERE x.id = e.id LIMIT 1
) AS t
WHERE t.version = e.version
    AND (t.state = e.state
        OR (e.state = 'pending' AND t.state = 'failed' AND t.completed_at IS NULL)
        OR (e.state IN ('pending', 'failed') AND t.state = 'cancelled' AND t.cancel_requested_at IS NOT NULL))
    AND (e.outcome IS NULL OR t.history -> -1 ->> 'outcome' = e.outcome);

-- fragment: append_history
jsonb_path_query_array(coalesce(t.history, '[]'), '$[last - 18 to last]') || jsonb_build_object(
            'number', t.attempts, 'started_at', coalesce(c.now - make_interval(secs => e.started_ago), t.started_at),
            'ended_at', c.now - make_interval(secs => e.ended_ago), 'worker_id', t.worker_id, 'outcome', e.outcome,
            'error', e.summary, 'release', {release_of_worker},
            -- The same traceback again is kept once.
            'traceback', CASE WHEN e.error IS DISTINCT FROM t.error THEN right(e.error, 16000) END
        )

-- fragment: release_of_worker
(SELECT w.info ->> 'release' FROM {schema}.tasklib_workers AS w WHERE w.worker_id = t.worker_id ORDER BY w.started_at DESC LIMIT 1)

-- name: renew_leases
-- Move the lease of running attempts forward; those that are no longer current are left out of the answer.
-- The answer also says for which of them a person has asked to cancel.
WITH held AS MATERIALIZED (SELECT h.* FROM jsonb_to_recordset(:held::jsonb) AS h (id uuid, version bigint))
UPDATE {schema}.tasks AS t
SET locked_until = coalesce(:now::timestamptz, now()) + make_interval(secs => :lease::float8)
FROM held AS h
WHERE t.id = ANY (ARRAY(SELECT k.id FROM held AS k)) AND t.id = h.id AND t.version = h.version AND t.state = 'running'
RETURNING t.id, t.cancel_requested_at;

-- name: find_cancel_requests
-- Which of the attempts held should end because a person asked for it, or are no longer current.
SELECT h.id, (t.id IS NULL OR t.version <> h.version OR t.state <> 'running') AS lost
FROM jsonb_to_recordset(:held::jsonb) AS h (id uuid, version bigint)
LEFT JOIN LATERAL (
    SELECT x.id, x.version, x.state, x.cancel_requested_at FROM {schema}.tasks AS x WHERE x.id = h.id LIMIT 1
) AS t ON true
WHERE t.id IS NULL OR t.cancel_requested_at IS NOT NULL OR t.version <> h.version OR t.state <> 'running';

-- name: report_progress
-- Keep the latest progress of running attempts.
WITH batch AS MATERIALIZED (
    SELECT b.* FROM jsonb_to_recordset(:batch::jsonb) AS b (
        id uuid, version bigint, progress double precision, message text
    )
)
UPDATE {schema}.tasks AS t
SET progress = p.progress, progress_message = p.message, updated_at = coalesce(:now::timestamptz, now())
FROM batch AS p
WHERE t.id = ANY (ARRAY(SELECT b.id FROM batch AS b)) AND t.id = p.id AND t.version = p.version AND t.state = 'running'
RETURNING t.id;

-- name: append_log
-- Keep the latest lines that attempts have logged, also one that was completed in its own transaction a moment ago.
WITH batch AS MATERIALIZED (
    SELECT b.* FROM jsonb_to_recordset(:batch::jsonb) AS b (id uuid, version bigint, lines jsonb)
)
UPDATE {schema}.tasks AS t
SET log = jsonb_path_query_array(coalesce(t.log, '[]') || l.lines, '$[last - 199 to last]')
FROM batch AS l
WHERE t.id = ANY (ARRAY(SELECT b.id FROM batch AS b)) AND t.id = l.id AND t.version = l.version
    AND t.state IN ('running', 'completed')
RETURNING t.id;
