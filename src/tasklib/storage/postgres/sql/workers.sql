-- name: register_worker
-- Make a worker instance known; it may claim from now on.  Said again after a lost reply it changes nothing.
WITH worker AS (
    INSERT INTO {schema}.tasklib_workers (
        instance, worker_id, host, pid, started_at, heartbeat_at, timeout_seconds, concurrency, names, info, owner
    )
    SELECT
        :instance::uuid, :worker_id::text, :host::text, :pid::integer, c.now, c.now, :timeout::float8,
        :concurrency::integer, :names::jsonb, :info::jsonb, :owner::text
    FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
    ON CONFLICT (instance) DO NOTHING
    RETURNING instance
)
INSERT INTO {schema}.tasklib_claims (instance) SELECT w.instance FROM worker AS w RETURNING instance;

-- name: count_owned_workers
-- How many other instances a caller has registered, including silent ones that are not removed yet.
SELECT count(*) AS found FROM {schema}.tasklib_workers AS w
WHERE w.owner = :owner::text AND w.instance <> :instance::uuid;

-- name: find_worker
-- What a claim must know of an instance, and who registered it.
SELECT w.worker_id, w.names::text AS names, w.owner FROM {schema}.tasklib_workers AS w WHERE w.instance = :instance::uuid;

-- name: find_holder
-- Who registered the instance that was given this version of a task.
SELECT w.instance, w.owner
FROM {schema}.tasklib_claims AS h JOIN {schema}.tasklib_workers AS w ON w.instance = h.instance
WHERE EXISTS (
    SELECT FROM unnest(h.seqs, h.versions) AS held (seq, version)
    WHERE held.seq = :seq::bigint AND held.version = :version::bigint
);

-- name: beat
-- Say that a worker instance is alive; no row means that it was declared dead.
UPDATE {schema}.tasklib_workers AS w
SET heartbeat_at = coalesce(:now::timestamptz, now()), info = coalesce(:info::jsonb, w.info)
WHERE w.instance = :instance::uuid
RETURNING w.instance;

-- name: forget_worker
-- Remove a worker instance that stopped in order and holds nothing.
WITH idle AS (DELETE FROM {schema}.tasklib_idle WHERE instance = :instance::uuid),
claims AS (DELETE FROM {schema}.tasklib_claims WHERE instance = :instance::uuid)
DELETE FROM {schema}.tasklib_workers WHERE instance = :instance::uuid RETURNING instance;

-- name: declare_idle
-- Ask to be notified of new tasks, for a bounded time; no row if enough others of the kind are.
-- Those who came at the same moment, and did not see each other, part when they ask again: the first of them stay.
WITH own AS (SELECT FROM {schema}.tasklib_idle AS i WHERE i.instance = :instance::uuid),
enough AS (
    SELECT count(*) >= :max_notified::integer AS reached FROM {schema}.tasklib_idle AS o
    WHERE o.kind = :kind::text AND o.until > now() AND o.instance <> :instance::uuid
        AND (o.instance < :instance::uuid OR NOT EXISTS (SELECT FROM own))
),
gone AS (
    DELETE FROM {schema}.tasklib_idle AS i
    WHERE i.instance = :instance::uuid AND (SELECT e.reached FROM enough AS e)
)
INSERT INTO {schema}.tasklib_idle (instance, kind, until)
SELECT :instance::uuid, :kind::text, now() + make_interval(secs => :seconds::float8) FROM enough AS e WHERE NOT e.reached
ON CONFLICT (instance) DO UPDATE SET kind = excluded.kind, until = excluded.until
RETURNING instance;

-- name: declare_busy
-- Be called no more, and call another of the kind: there may be more work than fits in one hand.
WITH gone AS (DELETE FROM {schema}.tasklib_idle AS i WHERE i.instance = :instance::uuid),
next AS (
    SELECT i.instance FROM {schema}.tasklib_idle AS i
    WHERE i.kind = :kind::text AND i.instance <> :instance::uuid AND i.until > now()
    ORDER BY random() LIMIT 1
)
SELECT pg_notify('{channel}', 'new:' || n.instance)::text AS notified FROM next AS n;

-- name: list_workers
-- Every known worker instance with what it holds, newest heartbeat first.
SELECT
    w.instance, w.worker_id, w.host, w.pid, w.started_at, w.heartbeat_at, w.timeout_seconds, w.concurrency,
    w.names::text AS names, w.info::text AS info,
    extract(epoch FROM c.now - w.heartbeat_at)::float8 AS silent_for,
    held.running = 0 AS idle, held.running
FROM {schema}.tasklib_workers AS w CROSS JOIN (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
CROSS JOIN LATERAL (
    SELECT count(*) AS running FROM {schema}.tasklib_claims AS h
    CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
    CROSS JOIN LATERAL ({held_task}) AS t
    WHERE h.instance = w.instance
) AS held
ORDER BY w.heartbeat_at DESC, w.instance;

-- fragment: held_task
-- The running task an entry of the claims means; the limit makes every plan look it up by its number.
SELECT x.id, x.seq, x.name, x.version, x.locked_until FROM {schema}.tasks AS x
    WHERE x.seq = held.seq AND x.version = held.version AND x.state = 'running' LIMIT 1

-- name: list_reported_secrets
-- Where the arguments of tasks hold secrets, as workers report it.
SELECT DISTINCT (w.info -> 'secrets')::text AS secrets FROM {schema}.tasklib_workers AS w
WHERE w.info -> 'secrets' IS NOT NULL;

-- name: list_held
-- The running tasks that an instance holds according to the database.
SELECT t.id, t.version
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL ({held_task}) AS t
WHERE h.instance = :instance::uuid
ORDER BY t.id;

-- name: begin_generation
-- Let no claim that the instance has sent so far take anything any more; one that is under way is waited for.
UPDATE {schema}.tasklib_claims AS h
SET generation = h.generation + 1
WHERE h.instance = :instance::uuid
RETURNING h.generation;

-- name: list_timed
-- What instances over HTTP run that has a timeout, and how many seconds each has left.
SELECT t.id, t.version, extract(epoch FROM t.started_at - c.now)::float8 + t.timeout_seconds AS seconds
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
CROSS JOIN {schema}.tasklib_workers AS w JOIN {schema}.tasklib_claims AS h ON h.instance = w.instance
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL (
    SELECT x.id, x.version, x.started_at, x.timeout_seconds FROM {schema}.tasks AS x
    WHERE x.seq = held.seq AND x.version = held.version AND x.state = 'running' LIMIT 1
) AS t
WHERE w.owner IS NOT NULL AND t.timeout_seconds IS NOT NULL
ORDER BY t.id;

-- name: renew_held
-- Move the lease of everything an instance runs forward, for an instance that cannot do it itself at the moment.
UPDATE {schema}.tasks AS t
SET locked_until = coalesce(:now::timestamptz, now()) + make_interval(secs => :lease::float8)
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
WHERE h.instance = :instance::uuid AND t.seq = held.seq AND t.version = held.version AND t.state = 'running'
    AND t.seq = ANY (ARRAY(SELECT unnest(k.seqs) FROM {schema}.tasklib_claims AS k WHERE k.instance = :instance::uuid))
RETURNING t.id;

-- name: look_at_workers
-- Every worker instance with its last heartbeat, as text that is only compared, and whether it is overdue.
SELECT
    w.instance, w.heartbeat_at::text AS heartbeat, w.timeout_seconds,
    w.heartbeat_at + make_interval(secs => w.timeout_seconds) < coalesce(:now::timestamptz, now()) AS overdue
FROM {schema}.tasklib_workers AS w
ORDER BY w.instance;

-- name: list_running
-- The running tasks that instances hold, of one name or with the empty name of all, no more than :limit of them.
SELECT t.id
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL ({held_task}) AS t
WHERE :name::text IN ('', t.name)
ORDER BY t.seq
LIMIT :limit::integer;

-- name: find_instance_of
-- The instance that runs a task; the limit makes every plan look the task up first.
SELECT h.instance
FROM (SELECT x.seq, x.version FROM {schema}.tasks AS x WHERE x.id = :id::uuid AND x.state = 'running' LIMIT 1) AS t
CROSS JOIN {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
WHERE held.seq = t.seq AND held.version = t.version;

-- name: count_held_of
-- How many tasks of a name each instance runs.
SELECT h.instance, count(*) AS running
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL ({held_task}) AS t
WHERE t.name = :name::text
GROUP BY h.instance;

-- name: find_dead_workers
-- Of instances that were silent, those whose heartbeat is still the one that was seen, and overdue; locked so that one
-- recoverer takes care of each, and so that none beats before it is forgotten.
SELECT w.instance
FROM {schema}.tasklib_workers AS w
JOIN jsonb_to_recordset(:silent::jsonb) AS s (instance uuid, heartbeat text) ON s.instance = w.instance
WHERE w.heartbeat_at::text = s.heartbeat
    AND w.heartbeat_at + make_interval(secs => w.timeout_seconds) < coalesce(:now::timestamptz, now())
ORDER BY w.instance
FOR UPDATE OF w SKIP LOCKED;

-- name: lock_claims
-- Let dead instances claim no more; waits for a claim of theirs that is under way, so that it is seen next.
SELECT h.instance, h.generation
FROM {schema}.tasklib_claims AS h
WHERE h.instance = ANY (ARRAY(SELECT jsonb_array_elements_text(:dead::jsonb)::uuid))
ORDER BY h.instance
FOR UPDATE;

-- name: find_held_by
-- The running tasks of dead instances.
SELECT t.id, t.version, t.seq, h.instance
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL ({held_task}) AS t
WHERE h.instance = ANY (ARRAY(SELECT jsonb_array_elements_text(:dead::jsonb)::uuid))
ORDER BY t.id;

-- name: find_expired_held
-- The running tasks that some instance holds although their lease has passed, with it as text that is only compared.
SELECT t.id, t.version, t.locked_until::text AS lease
FROM {schema}.tasklib_claims AS h
CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
CROSS JOIN LATERAL ({held_task}) AS t
WHERE t.locked_until < coalesce(:now::timestamptz, now())
ORDER BY t.id;

-- name: find_orphans
-- Running tasks among some insertions whose lease has passed and whom no known instance holds.
SELECT t.id, t.version
FROM {schema}.tasks AS t
WHERE t.seq > :after::bigint AND t.seq <= :until::bigint AND t.state = 'running'
    AND t.locked_until < coalesce(:now::timestamptz, now()) AND NOT EXISTS (
    SELECT FROM {schema}.tasklib_claims AS h
    CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
    WHERE held.seq = t.seq AND held.version = t.version
)
ORDER BY t.id;

-- name: find_stale_any
-- Every running task whose lease has passed or whom no known worker holds, found by reading the whole table.
SELECT t.id, t.version
FROM {schema}.tasks AS t
WHERE t.state = 'running' AND (
    t.locked_until < coalesce(:now::timestamptz, now())
    OR NOT EXISTS (
        SELECT FROM {schema}.tasklib_claims AS h
        CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
        WHERE held.seq = t.seq AND held.version = t.version
            AND h.instance <> ALL (ARRAY(SELECT jsonb_array_elements_text(:dead::jsonb)::uuid))
    )
)
ORDER BY t.id;

-- name: lock_lost
-- The tasks among these that a lost worker still holds, locked, with what decides about them and what became of the
-- worker.  One that was found by its lease is left out if that was renewed meanwhile.
SELECT
    t.id, t.version, t.retry_count, t.max_retries, t.lost_count, t.cancel_requested_at IS NOT NULL AS cancel_requested,
    concat(
        'WorkerLost: worker ', coalesce(t.worker_id, 'unknown'),
        CASE WHEN w.instance IS NULL THEN ' is gone' ELSE concat(
            ' on ', w.host, ' (pid ', w.pid, ') last answered at ',
            to_char(w.heartbeat_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        ) END,
        ' and lost the task in attempt ', t.attempts
    ) AS error
FROM {schema}.tasks AS t
JOIN jsonb_to_recordset(:lost::jsonb) AS r (id uuid, version bigint, lease text) ON t.id = r.id AND t.version = r.version
LEFT JOIN LATERAL (
    SELECT x.* FROM {schema}.tasklib_workers AS x WHERE x.worker_id = t.worker_id ORDER BY x.heartbeat_at LIMIT 1
) AS w ON true
WHERE t.id = ANY (ARRAY(SELECT (e.value ->> 'id')::uuid FROM jsonb_array_elements(:lost::jsonb) AS e))
    AND t.state = 'running' AND (r.lease IS NULL OR r.lease = t.locked_until::text)
ORDER BY t.id
FOR NO KEY UPDATE OF t;

-- name: remove_workers
-- Forget instances that were found dead; an instance that wakes up again finds itself unknown and claims nothing.
WITH idle AS (
    DELETE FROM {schema}.tasklib_idle AS i
    WHERE i.instance = ANY (ARRAY(SELECT jsonb_array_elements_text(:dead::jsonb)::uuid))
),
claims AS (
    DELETE FROM {schema}.tasklib_claims AS h
    WHERE h.instance = ANY (ARRAY(SELECT jsonb_array_elements_text(:dead::jsonb)::uuid))
)
DELETE FROM {schema}.tasklib_workers AS w
WHERE w.instance = ANY (ARRAY(SELECT jsonb_array_elements_text(:dead::jsonb)::uuid))
RETURNING w.instance;

-- name: note_ended_workers
-- Record instances that stopped in order or were lost, with how many tasks each held; forget those of a week ago.
-- One that stopped within ten seconds, as for a single batch, is not worth a line.
WITH old AS (
    DELETE FROM {schema}.tasklib_worker_history AS o WHERE o.instance IN (
        SELECT p.instance FROM {schema}.tasklib_worker_history AS p
        WHERE p.ended_at < coalesce(:now::timestamptz, now()) - interval '7 days'
        FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO {schema}.tasklib_worker_history (
    instance, worker_id, host, pid, release, started_at, heartbeat_at, ended_at, ending, tasks
)
SELECT
    w.instance, w.worker_id, w.host, w.pid, w.info ->> 'release', w.started_at, w.heartbeat_at, c.now, :ending::text,
    coalesce((:held::jsonb ->> w.instance::text)::integer, 0)
FROM {schema}.tasklib_workers AS w CROSS JOIN (SELECT coalesce(:now::timestamptz, now()) AS now) AS c
WHERE w.instance = ANY (ARRAY(SELECT jsonb_array_elements_text(:ended::jsonb)::uuid))
    AND (:ending::text = 'lost' OR c.now - w.started_at > interval '10 seconds')
ORDER BY w.instance
ON CONFLICT (instance) DO NOTHING
RETURNING instance;

-- name: find_releases
-- Which releases instances of these names ran, and from when to when.
SELECT w.worker_id, w.info ->> 'release' AS release, w.started_at, NULL::timestamptz AS ended_at
FROM {schema}.tasklib_workers AS w
WHERE w.worker_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:workers::jsonb))) AND w.info ->> 'release' IS NOT NULL
UNION ALL
SELECT e.worker_id, e.release, e.started_at, e.ended_at
FROM {schema}.tasklib_worker_history AS e
WHERE e.worker_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:workers::jsonb))) AND e.release IS NOT NULL;

-- name: list_ended_workers
-- Instances that ended in the last so many seconds; those that were lost first: they are not left out for many that stopped.
SELECT e.instance, e.worker_id, e.host, e.pid, e.release, e.started_at, e.heartbeat_at, e.ended_at, e.ending, e.tasks
FROM {schema}.tasklib_worker_history AS e
WHERE e.ended_at > coalesce(:now::timestamptz, now()) - make_interval(secs => :seconds::float8)
ORDER BY e.ending, e.ended_at DESC, e.instance
LIMIT :limit::integer;
