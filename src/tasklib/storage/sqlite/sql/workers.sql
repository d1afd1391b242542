-- name: register_worker
-- Make a worker instance known; it may claim from now on.  Said again after a lost reply it changes nothing.
INSERT INTO tasklib_workers (
    instance, worker_id, host, pid, started_at, heartbeat_at, timeout_seconds, concurrency, names, info, owner
)
VALUES (:instance, :worker_id, :host, :pid, :now, :now, :timeout, :concurrency, :names, :info, :owner)
ON CONFLICT (instance) DO NOTHING;
INSERT INTO tasklib_claims (instance) VALUES (:instance) ON CONFLICT (instance) DO NOTHING RETURNING instance;

-- name: count_owned_workers
-- How many other instances a caller has registered, including silent ones that are not removed yet.
SELECT count(*) AS found FROM tasklib_workers AS w WHERE w.owner = :owner AND w.instance <> :instance;

-- name: find_worker
-- What a claim must know of an instance, and who registered it.
SELECT w.worker_id, w.names, w.owner FROM tasklib_workers AS w WHERE w.instance = :instance;

-- name: find_holder
-- Who registered the instance that was given this version of a task.
SELECT w.instance, w.owner
FROM tasklib_claims AS h JOIN tasklib_workers AS w ON w.instance = h.instance
WHERE EXISTS (
    SELECT 1 FROM json_each(h.seqs) AS held WHERE held.value = :seq AND h.versions ->> held.key = :version
);

-- name: beat
-- Say that a worker instance is alive; no row means that it was declared dead.
UPDATE tasklib_workers
SET heartbeat_at = :now, info = coalesce(:info, info)
WHERE instance = :instance
RETURNING instance;

-- name: forget_worker
-- Remove a worker instance that stopped in order and holds nothing.
DELETE FROM tasklib_claims WHERE instance = :instance;
DELETE FROM tasklib_workers WHERE instance = :instance RETURNING instance;

-- name: declare_idle
-- Differs by necessity: nothing to record, an idle worker watches the file.
SELECT :instance AS instance, :kind AS kind, :max_notified AS max_notified, :seconds AS seconds;

-- name: declare_busy
-- Differs by necessity: see declare_idle.
SELECT :instance AS instance, :kind AS kind;

-- name: list_workers
-- Every known worker instance with what it holds, newest heartbeat first.
SELECT
    w.instance, w.worker_id, w.host, w.pid, w.started_at, w.heartbeat_at, w.timeout_seconds, w.concurrency, w.names,
    w.info, (julianday(:now) - julianday(w.heartbeat_at)) * 86400.0 AS silent_for,
    held.running = 0 AS idle, held.running
FROM tasklib_workers AS w
JOIN (
    SELECT h.instance, count(t.seq) AS running
    FROM tasklib_claims AS h
    LEFT JOIN json_each(h.seqs) AS held
    LEFT JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
    GROUP BY h.instance
) AS held ON held.instance = w.instance
ORDER BY w.heartbeat_at DESC, w.instance;

-- name: list_reported_secrets
-- Where the arguments of tasks hold secrets, as workers report it.
SELECT DISTINCT w.info -> '$.secrets' AS secrets FROM tasklib_workers AS w
WHERE w.info -> '$.secrets' IS NOT NULL;

-- name: list_held
-- The running tasks that an instance holds according to the database.
SELECT t.id, t.version
FROM tasklib_claims AS h
CROSS JOIN json_each(h.seqs) AS held
JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
WHERE h.instance = :instance
ORDER BY t.id;

-- name: begin_generation
-- Let no claim that the instance has sent so far take anything any more.
UPDATE tasklib_claims SET generation = generation + 1 WHERE instance = :instance RETURNING generation;

-- name: list_timed
-- What instances over HTTP run that has a timeout, and how many seconds each has left.
SELECT t.id, t.version, (julianday(t.started_at) - julianday(:now)) * 86400.0 + t.timeout_seconds AS seconds
FROM tasklib_workers AS w CROSS JOIN tasklib_claims AS h ON h.instance = w.instance
CROSS JOIN json_each(h.seqs) AS held
CROSS JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
WHERE w.owner IS NOT NULL AND t.timeout_seconds IS NOT NULL
ORDER BY t.id;

-- name: renew_held
-- Move the lease of everything an instance runs forward, for an instance that cannot do it itself at the moment.
UPDATE tasks
SET locked_until = strftime('%Y-%m-%d %H:%M:%f000', :now, printf('%+.3f seconds', :lease))
WHERE state = 'running' AND (seq, version) IN (
    SELECT held.value, h.versions ->> held.key
    FROM tasklib_claims AS h CROSS JOIN json_each(h.seqs) AS held WHERE h.instance = :instance
)
RETURNING id;

-- name: look_at_workers
-- Every worker instance with its last heartbeat, as text that is only compared, and whether it is overdue.
SELECT
    w.instance, w.heartbeat_at AS heartbeat, w.timeout_seconds,
    (julianday(:now) - julianday(w.heartbeat_at)) * 86400.0 > w.timeout_seconds AS overdue
FROM tasklib_workers AS w
ORDER BY w.instance;

-- name: list_running
-- The running tasks that instances hold, of one name or with the empty name of all, no more than :limit of them.
SELECT t.id
FROM tasklib_claims AS h
CROSS JOIN json_each(h.seqs) AS held
JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
WHERE :name IN ('', t.name)
ORDER BY t.seq
LIMIT :limit;

-- name: find_instance_of
-- The instance that runs a task.
SELECT h.instance
FROM tasks AS t CROSS JOIN tasklib_claims AS h CROSS JOIN json_each(h.seqs) AS held
WHERE t.id = :id AND t.state = 'running' AND held.value = t.seq AND h.versions ->> held.key = t.version;

-- name: count_held_of
-- How many tasks of a name each instance runs.
SELECT h.instance, count(*) AS running
FROM tasklib_claims AS h CROSS JOIN json_each(h.seqs) AS held
CROSS JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
WHERE t.name = :name
GROUP BY h.instance;

-- name: find_dead_workers
-- Of instances that were silent, those whose heartbeat is still the one that was seen, and overdue.
SELECT w.instance
FROM json_each(:silent) AS s JOIN tasklib_workers AS w ON w.instance = s.value ->> 'instance'
WHERE w.heartbeat_at = s.value ->> 'heartbeat'
    AND (julianday(:now) - julianday(w.heartbeat_at)) * 86400.0 > w.timeout_seconds
ORDER BY w.instance;

-- name: lock_claims
-- Let dead instances claim no more; the transaction this is read in is SQLite's only writer already.
SELECT h.instance, h.generation FROM tasklib_claims AS h
WHERE h.instance IN (SELECT d.value FROM json_each(:dead) AS d);

-- name: find_held_by
-- The running tasks of dead instances.
SELECT t.id, t.version, t.seq, h.instance
FROM tasklib_claims AS h
CROSS JOIN json_each(h.seqs) AS held
JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
WHERE h.instance IN (SELECT d.value FROM json_each(:dead) AS d)
ORDER BY t.id;

-- name: find_expired_held
-- The running tasks that some instance holds although their lease has passed, with it as text that is only compared.
SELECT t.id, t.version, t.locked_until AS lease
FROM tasklib_claims AS h
CROSS JOIN json_each(h.seqs) AS held
JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
WHERE t.locked_until < :now
ORDER BY t.id;

-- name: find_orphans
-- Running tasks among some insertions whose lease has passed and whom no known instance holds.
SELECT t.id, t.version
FROM tasks AS t
WHERE t.seq > :after AND t.seq <= :until AND t.state = 'running' AND t.locked_until < :now AND NOT EXISTS (
    SELECT 1 FROM tasklib_claims AS h CROSS JOIN json_each(h.seqs) AS held
    WHERE held.value = t.seq AND t.version = h.versions ->> held.key
)
ORDER BY t.id;

-- name: find_stale_any
-- Every running task whose lease has passed or whom no known worker holds, found by reading the whole table.
SELECT t.id, t.version
FROM tasks AS t
WHERE t.state = 'running' AND (
    t.locked_until < :now
    OR NOT EXISTS (
        SELECT 1 FROM tasklib_claims AS h CROSS JOIN json_each(h.seqs) AS held
        WHERE held.value = t.seq AND t.version = h.versions ->> held.key
            AND h.instance NOT IN (SELECT d.value FROM json_each(:dead) AS d)
    )
)
ORDER BY t.id;

-- name: lock_lost
-- The tasks among these that a lost worker still holds, locked, with what decides about them and what became of the
-- worker.  One that was found by its lease is left out if that was renewed meanwhile.
SELECT
    t.id, t.version, t.retry_count, t.max_retries, t.lost_count, t.cancel_requested_at IS NOT NULL AS cancel_requested,
    'WorkerLost: worker ' || coalesce(t.worker_id, 'unknown') || coalesce((
        SELECT ' on ' || w.host || ' (pid ' || w.pid || ') last answered at '
            || strftime('%Y-%m-%dT%H:%M:%fZ', w.heartbeat_at)
        FROM tasklib_workers AS w WHERE w.worker_id = t.worker_id ORDER BY w.heartbeat_at LIMIT 1
    ), ' is gone') || ' and lost the task in attempt ' || t.attempts AS error
FROM json_each(:lost) AS r
CROSS JOIN tasks AS t ON t.id = r.value ->> 'id'
WHERE t.version = r.value ->> 'version' AND t.state = 'running'
    AND (r.value ->> 'lease' IS NULL OR r.value ->> 'lease' = t.locked_until)
ORDER BY t.id;

-- name: remove_workers
-- Forget instances that were found dead; an instance that wakes up again finds itself unknown and claims nothing.
DELETE FROM tasklib_claims WHERE instance IN (SELECT d.value FROM json_each(:dead) AS d);
DELETE FROM tasklib_workers WHERE instance IN (SELECT d.value FROM json_each(:dead) AS d) RETURNING instance;

-- name: note_ended_workers
-- Record instances that stopped in order or were lost, with how many tasks each held; forget those of a week ago.
-- One that stopped within ten seconds, as for a single batch, is not worth a line.
DELETE FROM tasklib_worker_history WHERE julianday(:now) - julianday(ended_at) > 7;
INSERT INTO tasklib_worker_history (
    instance, worker_id, host, pid, release, started_at, heartbeat_at, ended_at, ending, tasks
)
SELECT
    w.instance, w.worker_id, w.host, w.pid, w.info ->> 'release', w.started_at, w.heartbeat_at, :now, :ending,
    coalesce((SELECT h.value FROM json_each(:held) AS h WHERE h.key = w.instance), 0)
FROM tasklib_workers AS w
WHERE w.instance IN (SELECT d.value FROM json_each(:ended) AS d)
    AND (:ending = 'lost' OR (julianday(:now) - julianday(w.started_at)) * 86400.0 > 10)
ON CONFLICT (instance) DO NOTHING
RETURNING instance;

-- name: find_releases
-- Which releases instances of these names ran, and from when to when.
SELECT w.worker_id, w.info ->> 'release' AS release, w.started_at, NULL AS ended_at
FROM tasklib_workers AS w
WHERE w.worker_id IN (SELECT k.value FROM json_each(:workers) AS k) AND w.info ->> 'release' IS NOT NULL
UNION ALL
SELECT e.worker_id, e.release, e.started_at, e.ended_at
FROM tasklib_worker_history AS e
WHERE e.worker_id IN (SELECT k.value FROM json_each(:workers) AS k) AND e.release IS NOT NULL;

-- name: list_ended_workers
-- Instances that ended in the last so many seconds; those that were lost first: they are not left out for many that stopped.
SELECT e.instance, e.worker_id, e.host, e.pid, e.release, e.started_at, e.heartbeat_at, e.ended_at, e.ending, e.tasks
FROM tasklib_worker_history AS e
WHERE (julianday(:now) - julianday(e.ended_at)) * 86400.0 < :seconds
ORDER BY e.ending, e.ended_at DESC, e.instance
LIMIT :limit;
