-- name: claim_tasks
-- Lease up to :limit due tasks of the names given to one worker, in order of priority, due time and insertion: of each
-- name no more than :caps allows, of one with a limit only if :limits says that this transaction holds it (take_limits),
-- and of those with a concurrency key only :keyed (take_keys).
-- Differs by necessity: SQLite has no writing CTEs, so the same steps are five statements in one transaction, and no
-- LATERAL, so each pair's head travels through json_each.  Nothing is written to the file when nothing is due.
DELETE FROM temp.tasklib_picked;
INSERT INTO temp.tasklib_picked (ord, seq)
WITH RECURSIVE
known AS MATERIALIZED (
    SELECT n.value AS name, coalesce((SELECT c.value FROM json_each(:caps) AS c WHERE c.key = n.value), :limit) AS cap
    FROM tasklib_claims AS me CROSS JOIN json_each(:names) AS n
    WHERE me.instance = :instance AND me.generation = :generation AND NOT {is_paused} AND NOT {is_blocked}
),
{waiting_pairs},
candidate AS MATERIALIZED (
    SELECT k.name, k.cap, p.priority, due.value ->> 0 AS due_at, due.value ->> 1 AS seq
    FROM pair AS p CROSS JOIN known AS k ON k.name = p.name CROSS JOIN json_each((
        SELECT json_group_array(json_array(head.due_at, head.seq)) FROM (
            SELECT t.due_at, t.seq FROM tasks AS t INDEXED BY tasks_claim
            WHERE t.name = p.name AND t.priority = p.priority AND t.due_at <= :now AND t.concurrency_key IS NULL
            ORDER BY t.due_at, t.seq LIMIT :limit
        ) AS head
    )) AS due
    WHERE p.priority IS NOT NULL
    UNION ALL
    SELECT t.name, k.cap, t.priority, t.due_at, t.seq
    FROM json_each(:keyed) AS own CROSS JOIN tasks AS t ON t.seq = own.value AND t.due_at <= :now
    CROSS JOIN known AS k ON k.name = t.name
),
-- A name's cap holds over all its tasks together: the best use it up first.
ranked AS (
    SELECT c.*, row_number() OVER (PARTITION BY c.name ORDER BY c.priority DESC, c.due_at, c.seq) AS rank FROM candidate AS c
)
SELECT row_number() OVER (ORDER BY c.priority DESC, c.due_at, c.seq), c.seq
FROM ranked AS c WHERE c.rank <= c.cap
ORDER BY c.priority DESC, c.due_at, c.seq
LIMIT :limit;
UPDATE tasks
SET state = CASE WHEN expires_at <= :now THEN 'cancelled' ELSE 'running' END,
    completed_at = CASE WHEN expires_at <= :now THEN :now END,
    error = CASE WHEN expires_at <= :now THEN 'Expired: not started before expires_at' ELSE error END,
    attempts = CASE WHEN expires_at <= :now THEN attempts ELSE min(attempts, 1999999999) + 1 END,
    max_retries = CASE WHEN max_retries >= 0 THEN max_retries
        ELSE coalesce((SELECT r.value FROM json_each(:retries) AS r WHERE r.key = tasks.name), :default_retries) END,
    started_at = CASE WHEN expires_at <= :now THEN started_at ELSE :now END,
    worker_id = CASE WHEN expires_at <= :now THEN NULL ELSE :worker_id END,
    locked_until = CASE
        WHEN expires_at <= :now THEN NULL
        ELSE strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :lease))
    END,
    -- Also larger than what a row has that was copied or written by hand; than 2^52 not, for every client must be able
    -- to read it and to count on: there the counter alone has never given it to this row.
    version = max(
        (SELECT v.last FROM tasklib_versions AS v) + (
            SELECT p.ord FROM temp.tasklib_picked AS p WHERE p.seq = tasks.seq
        ),
        CASE WHEN version < 4503599627370496 THEN version + 1 ELSE 0 END
    ),
    next_retry_at = NULL, waits_for = NULL, updated_at = :now
WHERE seq IN (SELECT +p.seq FROM temp.tasklib_picked AS p) AND due_at IS NOT NULL;
UPDATE tasklib_versions SET last = last + (SELECT count(*) FROM temp.tasklib_picked)
WHERE EXISTS (SELECT 1 FROM temp.tasklib_picked);
UPDATE tasklib_claims
SET seqs = (
        SELECT json_group_array(h.seq) FROM (
            SELECT value AS seq FROM json_each(:held_seqs)
            UNION ALL
            SELECT seq FROM (SELECT p.seq FROM temp.tasklib_picked AS p ORDER BY p.ord)
        ) AS h
    ),
    versions = (
        SELECT json_group_array(h.version) FROM (
            SELECT value AS version FROM json_each(:held_versions)
            UNION ALL
            SELECT version FROM (
                SELECT t.version FROM temp.tasklib_picked AS p CROSS JOIN tasks AS t ON t.seq = p.seq ORDER BY p.ord
            )
        ) AS h
    )
WHERE instance = :instance AND EXISTS (SELECT 1 FROM temp.tasklib_picked);
WITH RECURSIVE known AS MATERIALIZED (
    SELECT n.value AS name, {is_blocked} AS blocked
    FROM json_each(:names) AS n
    WHERE (SELECT count(*) FROM temp.tasklib_picked) < max(:limit, 1) AND NOT {is_paused}
),
{waiting_pairs},
head AS MATERIALIZED (
    SELECT p.name, (
        SELECT t.due_at FROM tasks AS t INDEXED BY tasks_claim
        WHERE t.name = p.name AND t.priority = p.priority AND t.due_at IS NOT NULL AND t.concurrency_key IS NULL
        ORDER BY t.due_at LIMIT 1
    ) AS due_at
    FROM pair AS p WHERE p.priority IS NOT NULL
)
SELECT
    (
        SELECT group_concat(json_array(
            t.id, t.seq, t.version, t.attempts, t.max_retries, t.created_at, t.name, json(t.kwargs),
            CASE WHEN t.scheduled_at <> t.created_at OR t.retry_count <> 0 OR t.lost_count <> 0 OR t.priority <> 0
                OR t.tags <> '{}'
                OR coalesce(t.timeout_seconds, t.headers, t.unique_key, t.concurrency_key, t.expires_at, t.marks) IS NOT NULL
                THEN json_array(t.scheduled_at, t.retry_count, t.lost_count, t.priority, json(t.tags), t.timeout_seconds,
                    json(t.headers), t.unique_key, t.concurrency_key, t.expires_at, t.marks) END
        -- Not in a WHERE: that lets SQLite read the whole table first, to make a Bloom filter for this join.
        ), ',' || char(10)) FILTER (WHERE t.state = 'running')
        FROM (SELECT p.seq FROM temp.tasklib_picked AS p ORDER BY p.ord) AS p
        CROSS JOIN tasks AS t ON t.seq = p.seq
    ) AS tasks,
    (SELECT count(*) FROM temp.tasklib_picked) AS seen,
    (SELECT count(*) FROM tasklib_claims WHERE instance = :instance) AS registered,
    EXISTS (SELECT 1 FROM tasklib_hints) AS hints,
    EXISTS (SELECT 1 FROM tasklib_controls AS c WHERE c.paused_at IS NOT NULL OR {is_limited}) AS switched,
    EXISTS (
        SELECT 1 FROM tasklib_controls AS c
        WHERE {is_limited} AND (c.name = '' OR c.name IN (SELECT n.value FROM json_each(:names) AS n))
    ) AS limited,
    -- Something is due under a limit that this transaction does not hold: look again at once.
    EXISTS (SELECT 1 FROM head AS h CROSS JOIN known AS k ON k.name = h.name AND k.blocked WHERE h.due_at <= :now) AS blocked,
    (SELECT (julianday(min(h.due_at)) - julianday(:now)) * 86400.0 FROM head AS h WHERE h.due_at > :now) AS next_due_in,
    :now AS now;

-- name: look_around
-- Whether a claim of these names may take something, and whether events or groups wait for somebody.  Only reads, so that
-- an idle worker costs little; a pause, a limit or a concurrency key leaves the decision to the claim.
WITH RECURSIVE
known AS MATERIALIZED (SELECT n.value AS name FROM json_each(:names) AS n),
{waiting_pairs},
head AS MATERIALIZED (
    SELECT (
        SELECT t.due_at FROM tasks AS t INDEXED BY tasks_claim
        WHERE t.name = p.name AND t.priority = p.priority AND t.due_at IS NOT NULL AND t.concurrency_key IS NULL
        ORDER BY t.due_at LIMIT 1
    ) AS due_at
    FROM pair AS p WHERE p.priority IS NOT NULL
)
SELECT
    EXISTS (SELECT 1 FROM head AS h WHERE h.due_at <= :now)
        OR EXISTS (SELECT 1 FROM tasklib_controls AS c WHERE c.paused_at IS NOT NULL OR {is_limited})
        OR EXISTS (SELECT 1 FROM tasklib_hints)
        OR NOT EXISTS (SELECT 1 FROM tasklib_claims AS i WHERE i.instance = :instance) AS may_claim,
    (SELECT (julianday(min(h.due_at)) - julianday(:now)) * 86400.0 FROM head AS h WHERE h.due_at > :now) AS next_due_in,
    EXISTS (SELECT 1 FROM tasklib_events AS e WHERE e.delivered_at IS NULL) AS events,
    EXISTS (SELECT 1 FROM tasklib_tallies)
        OR EXISTS (SELECT 1 FROM tasklib_groups AS g WHERE g.stopped_at IS NOT NULL AND g.cleared_at IS NULL) AS groups;

-- fragment: waiting_pairs
-- The (name, priority) pairs of `known` names that wait, found by skipping through the claim index.
pair (name, priority) AS (
    SELECT k.name, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_claim
        WHERE t.name = k.name AND t.due_at IS NOT NULL AND t.concurrency_key IS NULL
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM known AS k
    UNION ALL
    SELECT p.name, (
        SELECT t.priority FROM tasks AS t INDEXED BY tasks_claim
        WHERE t.name = p.name AND t.priority < p.priority AND t.due_at IS NOT NULL AND t.concurrency_key IS NULL
        ORDER BY t.priority DESC LIMIT 1
    )
    FROM pair AS p WHERE p.priority IS NOT NULL
)

-- fragment: is_paused
EXISTS (SELECT 1 FROM tasklib_controls AS c WHERE c.name IN ('', n.value) AND c.paused_at IS NOT NULL)

-- fragment: is_blocked
EXISTS (
        SELECT 1 FROM tasklib_controls AS c
        WHERE c.name IN ('', n.value) AND {is_limited} AND c.name NOT IN (SELECT l.value FROM json_each(:limits) AS l)
    )

-- fragment: is_limited
(c.rate IS NOT NULL OR c.max_running IS NOT NULL)

-- name: complete_tasks
-- End attempts in success; an attempt that is not the current one changes nothing and is left out of the answer.
UPDATE tasks
SET state = 'completed', result = e.value -> 'result',
    completed_at = {ended_at}, started_at = {started_at}, updated_at = :now, finished_by = worker_id,
    worker_id = NULL, locked_until = NULL, error = NULL, cancel_requested_at = NULL,
    progress = coalesce(e.value ->> 'progress', progress),
    progress_message = CASE WHEN e.value ->> 'progress' IS NULL THEN progress_message ELSE e.value ->> 'message' END
FROM json_each(:batch) AS e
WHERE tasks.id = e.value ->> 'id' AND tasks.version = e.value ->> 'version' AND tasks.state = 'running'
RETURNING tasks.id AS ids;

-- fragment: started_at
strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', -(e.value ->> 'started_ago')))

-- fragment: ended_at
strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', -(e.value ->> 'ended_ago')))

-- name: end_attempts
-- End attempts in any way but success: retry later, give up, snooze, release, cancel or lose; fenced like complete_tasks.
-- Whatever does not end the task for good cancels it if a person has asked for that meanwhile.  A release leaves a task
-- whose last attempt failed waiting for its retry again, which is due now.  One that suspends itself waits on, unless
-- one of the steps it waits for is open no more.
UPDATE tasks
SET state = CASE
        WHEN {is_asked_to_end} THEN 'cancelled' WHEN {is_retry_given_back} THEN 'failed' ELSE e.value ->> 'state'
    END,
    completed_at = CASE WHEN {is_final} THEN {ended_at} END,
    next_retry_at = CASE
        WHEN {is_final} OR NOT {waits_still} THEN NULL
        WHEN {is_retry_given_back} THEN :now
        WHEN e.value ->> 'delay' IS NOT NULL
        THEN strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', e.value ->> 'delay'))
    END,
    waits_for = CASE WHEN NOT {is_final} AND {waits_still} THEN e.value ->> 'waits_for' END,
    expires_at = CASE WHEN e.value ->> 'waits_for' IS NULL THEN expires_at END,
    started_at = CASE WHEN e.value ->> 'started_ago' IS NULL THEN started_at ELSE {started_at} END,
    attempts = attempts - (e.value ->> 'refund'),
    retry_count = retry_count + CASE WHEN {is_final} THEN 0 ELSE (e.value ->> 'retried') END,
    lost_count = min(lost_count, 1999999999) + (e.value ->> 'lost'),
    error = coalesce(e.value ->> 'error', error), fingerprint = coalesce(e.value ->> 'fingerprint', fingerprint),
    history = CASE WHEN e.value ->> 'outcome' IS NULL THEN history ELSE json_insert(
        CASE WHEN json_array_length(history) >= 20 THEN json_remove(history, '$[0]') ELSE coalesce(history, '[]') END,
        '$[#]', json_object(
            'number', attempts,
            'started_at', CASE WHEN e.value ->> 'started_ago' IS NULL THEN started_at ELSE {started_at} END,
            'ended_at', {ended_at}, 'worker_id', worker_id, 'outcome', e.value ->> 'outcome', 'error', e.value ->> 'summary',
            'release', {release_of_worker},
            -- The same traceback again is kept once.
            'traceback', CASE WHEN e.value ->> 'error' IS NOT error THEN substr(e.value ->> 'error', -16000) END
        )
    ) END,
    progress = CASE WHEN {is_final} THEN coalesce(e.value ->> 'progress', progress) END,
    progress_message = CASE
        WHEN {is_final} AND e.value ->> 'progress' IS NOT NULL THEN e.value ->> 'message'
        WHEN {is_final} THEN progress_message
    END,
    finished_by = CASE WHEN {is_final} THEN worker_id END,
    updated_at = :now, worker_id = NULL, locked_until = NULL
FROM json_each(:batch) AS e
WHERE tasks.id = e.value ->> 'id' AND tasks.version = e.value ->> 'version' AND tasks.state = 'running'
RETURNING tasks.id;

-- fragment: release_of_worker
(
            SELECT w.info ->> 'release' FROM tasklib_workers AS w WHERE w.worker_id = tasks.worker_id
            ORDER BY w.started_at DESC LIMIT 1
        )

-- fragment: is_final
(e.value ->> 'terminal' OR cancel_requested_at IS NOT NULL)

-- fragment: waits_still
(e.value ->> 'keys' IS NULL OR NOT EXISTS (
            SELECT 1 FROM tasklib_steps AS s
            WHERE s.task_id = tasks.id AND s.key IN (SELECT k.value FROM json_each(e.value -> 'keys') AS k) AND s.state <> 'open'
        ))

-- fragment: is_asked_to_end
NOT (e.value ->> 'terminal') AND cancel_requested_at IS NOT NULL

-- fragment: is_retry_given_back
(e.value ->> 'released' AND retry_count > 0 AND history ->> '$[#-1].outcome' <> 'lost')

-- name: find_recorded
-- Which of these attempts were the last of their tasks and ended like this, as the rows show it.
-- What would have gone on is cancelled where a person asked for that.
SELECT t.id
FROM json_each(:batch) AS e
CROSS JOIN tasks AS t ON t.id = e.value ->> 'id'
WHERE t.version = e.value ->> 'version'
    AND (t.state = e.value ->> 'state'
        OR (e.value ->> 'state' = 'pending' AND t.state = 'failed' AND t.completed_at IS NULL)
        OR (e.value ->> 'state' IN ('pending', 'failed') AND t.state = 'cancelled' AND t.cancel_requested_at IS NOT NULL))
    AND (e.value ->> 'outcome' IS NULL OR t.history ->> '$[#-1].outcome' = e.value ->> 'outcome');

-- name: renew_leases
-- Move the lease of running attempts forward; those that are no longer current are left out of the answer.
-- The answer also says for which of them a person has asked to cancel.
UPDATE tasks
SET locked_until = strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :lease))
FROM json_each(:held) AS h
WHERE tasks.id = h.value ->> 'id' AND tasks.version = h.value ->> 'version' AND tasks.state = 'running'
RETURNING tasks.id, tasks.cancel_requested_at;

-- name: find_cancel_requests
-- Which of the attempts held should end because a person asked for it, or are no longer current.
SELECT h.value ->> 'id' AS id, (t.id IS NULL OR t.version <> h.value ->> 'version' OR t.state <> 'running') AS lost
FROM json_each(:held) AS h
LEFT JOIN tasks AS t ON t.id = h.value ->> 'id'
WHERE t.id IS NULL OR t.cancel_requested_at IS NOT NULL OR t.version <> h.value ->> 'version' OR t.state <> 'running';

-- name: report_progress
-- Keep the latest progress of running attempts.
UPDATE tasks
SET progress = p.value ->> 'progress', progress_message = p.value ->> 'message', updated_at = :now
FROM json_each(:batch) AS p
WHERE tasks.id = p.value ->> 'id' AND tasks.version = p.value ->> 'version' AND tasks.state = 'running'
RETURNING tasks.id;

-- name: append_log
-- Keep the latest lines that attempts have logged, also one that was completed in its own transaction a moment ago.
UPDATE tasks
SET log = (
    SELECT json_group_array(json(kept.line)) FROM (
        SELECT latest.line FROM (
            SELECT 0 AS part, old.key AS position, old.value AS line FROM json_each(coalesce(tasks.log, '[]')) AS old
            UNION ALL
            SELECT 1, new.key, new.value FROM json_each(l.value, '$.lines') AS new
            ORDER BY 1 DESC, 2 DESC LIMIT 200
        ) AS latest ORDER BY latest.part, latest.position
    ) AS kept
)
FROM json_each(:batch) AS l
WHERE tasks.id = l.value ->> 'id' AND tasks.version = l.value ->> 'version'
    AND tasks.state IN ('running', 'completed')
RETURNING tasks.id;
