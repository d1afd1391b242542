-- name: add_metrics
-- Add what a worker has done since it last said so, to the minute that it is now.
INSERT INTO {schema}.tasklib_stats_outcomes (at, name, outcome, count, waits, runs)
SELECT
    floor(extract(epoch FROM coalesce(:now::timestamptz, now())) / 60)::bigint * 60, b.name, b.outcome, b.count,
    b.waits, b.runs
FROM jsonb_to_recordset(:batch::jsonb) AS b (name text, outcome text, count bigint, waits jsonb, runs jsonb);

-- name: merge_metrics
-- Make one row for each minute of what workers have added to it, and after a day one for each hour.
WITH part AS (
    DELETE FROM {schema}.tasklib_stats_outcomes AS m
    WHERE m.at < :minutes_before::bigint AND (m.fresh OR (m.at < :hours_before::bigint AND m.at % 3600 <> 0))
    RETURNING m.at - CASE WHEN m.at < :hours_before::bigint THEN m.at % 3600 ELSE 0 END AS at, m.name, m.outcome,
        m.count, m.waits, m.runs
),
waited AS ({merge_waits}),
ran AS ({merge_runs})
INSERT INTO {schema}.tasklib_stats_outcomes (at, name, outcome, count, waits, runs, fresh)
SELECT p.at, p.name, p.outcome, sum(p.count), coalesce(min(w.buckets::text), '{}')::jsonb,
    coalesce(min(r.buckets::text), '{}')::jsonb, false
FROM part AS p
LEFT JOIN waited AS w ON w.at = p.at AND w.name = p.name AND w.outcome = p.outcome
LEFT JOIN ran AS r ON r.at = p.at AND r.name = p.name AND r.outcome = p.outcome
GROUP BY p.at, p.name, p.outcome;

-- fragment: merge_waits
SELECT x.at, x.name, x.outcome, jsonb_object_agg(x.key, x.count) AS buckets
    FROM (
        SELECT p.at, p.name, p.outcome, e.key, sum(e.value::bigint) AS count
        FROM part AS p CROSS JOIN LATERAL jsonb_each_text(p.waits) AS e
        GROUP BY p.at, p.name, p.outcome, e.key
    ) AS x
    GROUP BY x.at, x.name, x.outcome

-- fragment: merge_runs
SELECT x.at, x.name, x.outcome, jsonb_object_agg(x.key, x.count) AS buckets
    FROM (
        SELECT p.at, p.name, p.outcome, e.key, sum(e.value::bigint) AS count
        FROM part AS p CROSS JOIN LATERAL jsonb_each_text(p.runs) AS e
        GROUP BY p.at, p.name, p.outcome, e.key
    ) AS x
    GROUP BY x.at, x.name, x.outcome

-- name: read_metrics
-- What was done between two moments, by step and outcome, and with :by_name by name, merged.
WITH part AS MATERIALIZED (
    SELECT m.at - m.at % :step::bigint AS at, CASE WHEN :by_name::boolean THEN m.name ELSE '' END AS name, m.outcome,
        m.count, m.waits, m.runs
    FROM {schema}.tasklib_stats_outcomes AS m
    WHERE m.at >= :since::bigint AND m.at < :until::bigint AND (:name::text IS NULL OR m.name = :name::text)
),
waited AS ({merge_waits}),
ran AS ({merge_runs})
SELECT p.at, p.name, p.outcome, sum(p.count)::bigint AS count, min(w.buckets::text) AS waits, min(r.buckets::text) AS runs
FROM part AS p
LEFT JOIN waited AS w ON w.at = p.at AND w.name = p.name AND w.outcome = p.outcome
LEFT JOIN ran AS r ON r.at = p.at AND r.name = p.name AND r.outcome = p.outcome
GROUP BY p.at, p.name, p.outcome
ORDER BY p.at, p.name, p.outcome;

-- name: add_depths
-- Record how deep the queue is in this minute, unless it is recorded.
INSERT INTO {schema}.tasklib_stats_depths (at, name, due, delayed, retrying, running)
SELECT
    floor(extract(epoch FROM coalesce(:now::timestamptz, now())) / 60)::bigint * 60, b.name, b.due, b.delayed,
    b.retrying, b.running
FROM jsonb_to_recordset(:batch::jsonb) AS b (name text, due bigint, delayed bigint, retrying bigint, running bigint)
ON CONFLICT DO NOTHING;

-- name: read_depths
-- How deep the queue was between two moments: the deepest of each step.
SELECT d.at - d.at % :step::bigint AS at, max(d.due)::bigint AS due, max(d.delayed)::bigint AS delayed,
    max(d.retrying)::bigint AS retrying, max(d.running)::bigint AS running
FROM (
    SELECT s.at, sum(s.due) AS due, sum(s.delayed) AS delayed, sum(s.retrying) AS retrying, sum(s.running) AS running
    FROM {schema}.tasklib_stats_depths AS s
    WHERE s.at >= :since::bigint AND s.at < :until::bigint AND (:name::text IS NULL OR s.name = :name::text)
    GROUP BY s.at
) AS d
GROUP BY 1
ORDER BY 1;

-- name: thin_depths
-- Keep one look at the queue for each hour that is more than a day ago.
DELETE FROM {schema}.tasklib_stats_depths AS d
WHERE d.at < :hours_before::bigint AND EXISTS (
    SELECT FROM {schema}.tasklib_stats_depths AS e
    WHERE e.name = d.name AND e.at < d.at AND e.at >= d.at - d.at % 3600
);

-- name: forget_numbers
-- Forget what is too old to be shown.
WITH metrics AS (DELETE FROM {schema}.tasklib_stats_outcomes AS m WHERE m.at < :oldest::bigint)
DELETE FROM {schema}.tasklib_stats_depths AS d WHERE d.at < :oldest::bigint;

-- name: read_statistics_turn
-- When the statistics were last kept, whether there is anything to count on, and what time it is.
SELECT b.counted_at, b.merged_at, coalesce(:now::timestamptz, now()) AS now,
    EXISTS (SELECT FROM {schema}.tasks AS t WHERE t.seq > b.seq) OR EXISTS (SELECT FROM {schema}.tasklib_stats_deleted) AS behind
FROM {schema}.tasklib_stats_position AS b;

-- name: lock_statistics
-- Take the turn of keeping the statistics; no row means that another worker has it.
SELECT b.seq FROM {schema}.tasklib_stats_position AS b FOR UPDATE SKIP LOCKED;

-- name: keep_statistics
-- Note when the statistics were last merged.
UPDATE {schema}.tasklib_stats_position AS b SET merged_at = coalesce(:now::timestamptz, now());

-- name: fold_totals
-- Move the position up to which rows are counted forward, a bounded way, and take off what was deleted before it.
-- A row may still appear behind a position as long as its transaction is open.  So the next position is noted first; in a
-- later turn, when all who had drawn a number by then have their transaction's number too, that of the newest; and it is
-- taken when all up to that have ended.
WITH counted AS MATERIALIZED (
    SELECT b.seq, b.next_seq, b.next_xid, CASE
            WHEN pg_snapshot_xmin(pg_current_snapshot()) >= b.next_xid
            THEN least(b.next_seq, b.seq + :step::bigint) ELSE b.seq
        END AS until
    FROM {schema}.tasklib_stats_position AS b
),
gone AS (DELETE FROM {schema}.tasklib_stats_deleted RETURNING name, seqs),
added AS MATERIALIZED (
    SELECT (t.seq - 1) / :block_size::bigint AS number, t.name, count(*) AS count,
        min(t.created_at) AS oldest, max(t.created_at) AS newest
    FROM counted AS b CROSS JOIN {schema}.tasks AS t
    WHERE t.seq > b.seq AND t.seq <= b.until
    GROUP BY 1, 2
),
change AS (
    SELECT c.name, sum(c.count) AS count
    FROM (
        SELECT a.name, a.count FROM added AS a
        UNION ALL
        SELECT g.name, -count(*)
        FROM counted AS b CROSS JOIN gone AS g CROSS JOIN unnest(g.seqs) AS s (seq)
        WHERE s.seq <= b.seq
        GROUP BY g.name
    ) AS c
    GROUP BY c.name
),
totals AS (
    INSERT INTO {schema}.tasklib_stats_totals AS t (name, count) SELECT c.name, c.count FROM change AS c
    ON CONFLICT (name) DO UPDATE SET count = t.count + excluded.count
),
blocks AS (
    INSERT INTO {schema}.tasklib_stats_blocks AS s (number, oldest, newest, names)
    SELECT a.number, min(a.oldest), max(a.newest), CASE WHEN count(*) <= :most_names::integer THEN jsonb_agg(a.name) END
    FROM added AS a
    GROUP BY a.number
    ON CONFLICT (number) DO UPDATE
    SET oldest = least(s.oldest, excluded.oldest), newest = greatest(s.newest, excluded.newest), names = (
        SELECT CASE WHEN count(*) <= :most_names::integer THEN jsonb_agg(n.name) END
        FROM (
            SELECT jsonb_array_elements_text(s.names) AS name
            UNION SELECT jsonb_array_elements_text(excluded.names)
        ) AS n
        WHERE s.names IS NOT NULL AND excluded.names IS NOT NULL
    )
),
newest AS (SELECT coalesce(max(t.seq), 0) AS seq FROM {schema}.tasks AS t)
UPDATE {schema}.tasklib_stats_position AS c
SET seq = b.until, counted_at = coalesce(:now::timestamptz, now()),
    next_seq = CASE
        WHEN b.next_seq IS NULL OR b.until >= b.next_seq THEN greatest(n.seq, b.until) ELSE b.next_seq
    END,
    next_xid = CASE
        WHEN b.next_seq IS NULL OR b.until >= b.next_seq THEN NULL
        ELSE coalesce(b.next_xid, pg_snapshot_xmax(pg_current_snapshot()))
    END
FROM counted AS b CROSS JOIN newest AS n
RETURNING c.seq, n.seq - c.seq AS behind;

-- name: forget_blocks
-- Forget the blocks below the oldest task.
DELETE FROM {schema}.tasklib_stats_blocks AS s
WHERE s.number < (
    SELECT (coalesce((SELECT min(t.seq) FROM {schema}.tasks AS t), max(b.seq) + 1) - 1) / :block_size::bigint
    FROM {schema}.tasklib_stats_position AS b
);

-- name: measure_size
-- About how many rows there are: those counted, and the numbers drawn since.
SELECT (
    coalesce((SELECT sum(t.count) FROM {schema}.tasklib_stats_totals AS t), 0)
    + greatest(0, coalesce((SELECT max(t.seq) FROM {schema}.tasks AS t), 0)
        - coalesce((SELECT b.seq FROM {schema}.tasklib_stats_position AS b), 0))
)::bigint AS count;

-- name: count_quickly
-- How many tasks are in each state, by name, without reading what is finished: waiting tasks and failures by their indexes,
-- running ones by who holds them, and all by the totals.  What is left over is completed.
WITH counted AS MATERIALIZED (SELECT coalesce(max(b.seq), 0) AS seq FROM {schema}.tasklib_stats_position AS b),
clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now)
SELECT c.name, c.kind, sum(c.count)::bigint AS count, sum(c.later)::bigint AS later, sum(c.waiting)::bigint AS waiting
FROM (
    SELECT t.name, 'total' AS kind, t.count, 0 AS later, 0 AS waiting FROM {schema}.tasklib_stats_totals AS t
    UNION ALL
    SELECT t.name, 'total', count(*), 0, 0
    FROM counted AS b CROSS JOIN {schema}.tasks AS t WHERE t.seq > b.seq
    GROUP BY t.name
    UNION ALL
    SELECT d.name, 'total', -count(*), 0, 0
    FROM counted AS b CROSS JOIN {schema}.tasklib_stats_deleted AS d CROSS JOIN unnest(d.seqs) AS s (seq) WHERE s.seq <= b.seq
    GROUP BY d.name
    UNION ALL
    SELECT t.name, 'waiting', count(*), count(*) FILTER (WHERE t.due_at > clock.now), 0
    FROM clock CROSS JOIN {schema}.tasks AS t WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL
    GROUP BY t.name
    UNION ALL
    SELECT t.name, 'waiting', count(*), count(*) FILTER (WHERE t.due_at > clock.now), 0
    FROM clock CROSS JOIN {schema}.tasks AS t WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL
    GROUP BY t.name
    UNION ALL
    SELECT t.name, t.trouble, count(*), count(*) FILTER (WHERE t.due_at > clock.now), count(t.due_at)
    FROM clock CROSS JOIN {schema}.tasks AS t WHERE t.trouble IS NOT NULL
    GROUP BY t.name, t.trouble
    UNION ALL
    SELECT t.name, 'suspended', count(*), count(*) FILTER (WHERE t.due_at > clock.now), count(t.due_at)
    FROM clock CROSS JOIN {schema}.tasks AS t WHERE t.waits_for IS NOT NULL
    GROUP BY t.name
    UNION ALL
    SELECT t.name, 'running', count(*), 0, 0
    FROM {schema}.tasklib_claims AS h
    CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
    CROSS JOIN LATERAL ({held_task}) AS t
    GROUP BY t.name
) AS c
GROUP BY c.name, c.kind;

-- name: count_due
-- What is due and what runs, by name: waiting tasks by their indexes, running ones by who holds them.
WITH clock AS MATERIALIZED (SELECT coalesce(:now::timestamptz, now()) AS now)
SELECT c.name, sum(c.due)::bigint AS due, sum(c.running)::bigint AS running, max(c.oldest)::float8 AS oldest
FROM (
    SELECT t.name, count(*) AS due, 0 AS running, extract(epoch FROM min(clock.now) - min(t.due_at)) AS oldest
    FROM clock CROSS JOIN {schema}.tasks AS t
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL AND t.due_at <= clock.now
    GROUP BY t.name
    UNION ALL
    SELECT t.name, count(*), 0, extract(epoch FROM min(clock.now) - min(t.due_at))
    FROM clock CROSS JOIN {schema}.tasks AS t
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL AND t.due_at <= clock.now
    GROUP BY t.name
    UNION ALL
    SELECT t.name, 0, count(*), NULL
    FROM {schema}.tasklib_claims AS h
    CROSS JOIN unnest(h.seqs, h.versions) AS held (seq, version)
    CROSS JOIN LATERAL ({held_task}) AS t
    GROUP BY t.name
) AS c
GROUP BY c.name
ORDER BY c.name;

-- name: find_oldest_waiting
-- Of each name the task that has been due the longest, that one first: the head of every name and priority, and of
-- every key among the first 10,000.
WITH RECURSIVE
head AS (
    SELECT t.seq, t.id, t.name, t.priority, t.due_at FROM {schema}.tasks AS t
    WHERE t.seq = (
        SELECT f.seq FROM {schema}.tasks AS f WHERE f.due_at IS NOT NULL AND f.concurrency_key IS NULL
        ORDER BY f.name, f.priority DESC, f.due_at, f.seq LIMIT 1
    )
    UNION ALL
    SELECT t.seq, t.id, t.name, t.priority, t.due_at FROM head AS h JOIN {schema}.tasks AS t ON t.seq = coalesce(
        (
            SELECT n.seq FROM {schema}.tasks AS n
            WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NULL AND n.name = h.name AND n.priority < h.priority
            ORDER BY n.priority DESC, n.due_at, n.seq LIMIT 1
        ),
        (
            SELECT n.seq FROM {schema}.tasks AS n
            WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NULL AND n.name > h.name
            ORDER BY n.name, n.priority DESC, n.due_at, n.seq LIMIT 1
        )
    )
),
keyed AS (
    SELECT t.seq, t.id, t.name, t.concurrency_key, t.due_at, 1 AS place FROM {schema}.tasks AS t
    WHERE t.seq = (
        SELECT f.seq FROM {schema}.tasks AS f WHERE f.due_at IS NOT NULL AND f.concurrency_key IS NOT NULL
        ORDER BY f.concurrency_key, f.name, f.priority DESC, f.due_at, f.seq LIMIT 1
    )
    UNION ALL
    SELECT t.seq, t.id, t.name, t.concurrency_key, t.due_at, k.place + 1
    FROM keyed AS k JOIN {schema}.tasks AS t ON t.seq = (
        SELECT n.seq FROM {schema}.tasks AS n
        WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NOT NULL AND n.concurrency_key > k.concurrency_key
        ORDER BY n.concurrency_key, n.name, n.priority DESC, n.due_at, n.seq LIMIT 1
    )
    WHERE k.place < 10000
)
SELECT o.id, o.name, o.due_at, extract(epoch FROM coalesce(:now::timestamptz, now()) - o.due_at)::float8 AS seconds FROM (
    SELECT DISTINCT ON (w.name) w.id, w.name, w.due_at FROM (
        SELECT h.id, h.name, h.due_at FROM head AS h
        UNION ALL
        SELECT k.id, k.name, k.due_at FROM keyed AS k
    ) AS w
    WHERE w.due_at <= coalesce(:now::timestamptz, now())
    ORDER BY w.name, w.due_at
) AS o
ORDER BY o.due_at;
