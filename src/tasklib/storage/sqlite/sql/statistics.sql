-- name: add_metrics
-- Add what a worker has done since it last said so, to the minute that it is now.
INSERT INTO tasklib_stats_outcomes (at, name, outcome, count, waits, runs)
SELECT CAST(strftime('%s', :now) AS INTEGER) / 60 * 60, b.value ->> 'name', b.value ->> 'outcome', b.value ->> 'count',
    b.value -> 'waits', b.value -> 'runs'
FROM json_each(:batch) AS b;

-- name: merge_metrics
-- Make one row for each minute of what workers have added to it, and after a day one for each hour.
INSERT INTO tasklib_stats_outcomes (at, name, outcome, count, waits, runs, fresh)
WITH part AS MATERIALIZED (
    SELECT m.at - CASE WHEN m.at < :hours_before THEN m.at % 3600 ELSE 0 END AS at, m.name, m.outcome, m.count, m.waits,
        m.runs
    FROM tasklib_stats_outcomes AS m
    WHERE m.at < :minutes_before AND (m.fresh OR (m.at < :hours_before AND m.at % 3600 <> 0))
),
waited AS ({merge_waits}),
ran AS ({merge_runs})
SELECT p.at, p.name, p.outcome, sum(p.count), coalesce(min(w.buckets), '{}'), coalesce(min(r.buckets), '{}'), -1
FROM part AS p
LEFT JOIN waited AS w ON w.at = p.at AND w.name = p.name AND w.outcome = p.outcome
LEFT JOIN ran AS r ON r.at = p.at AND r.name = p.name AND r.outcome = p.outcome
GROUP BY p.at, p.name, p.outcome;
DELETE FROM tasklib_stats_outcomes
WHERE at < :minutes_before AND (fresh = 1 OR (fresh = 0 AND at < :hours_before AND at % 3600 <> 0));
UPDATE tasklib_stats_outcomes SET fresh = 0 WHERE fresh = -1 AND at < :minutes_before;

-- fragment: merge_waits
SELECT x.at, x.name, x.outcome, json_group_object(x.key, x.count) AS buckets
    FROM (
        SELECT p.at, p.name, p.outcome, e.key, sum(e.value) AS count
        FROM part AS p CROSS JOIN json_each(p.waits) AS e
        GROUP BY p.at, p.name, p.outcome, e.key
    ) AS x
    GROUP BY x.at, x.name, x.outcome

-- fragment: merge_runs
SELECT x.at, x.name, x.outcome, json_group_object(x.key, x.count) AS buckets
    FROM (
        SELECT p.at, p.name, p.outcome, e.key, sum(e.value) AS count
        FROM part AS p CROSS JOIN json_each(p.runs) AS e
        GROUP BY p.at, p.name, p.outcome, e.key
    ) AS x
    GROUP BY x.at, x.name, x.outcome

-- name: read_metrics
-- What was done between two moments, by step and outcome, and with :by_name by name, merged.
WITH part AS MATERIALIZED (
    SELECT m.at - m.at % :step AS at, CASE WHEN :by_name THEN m.name ELSE '' END AS name, m.outcome, m.count, m.waits,
        m.runs
    FROM tasklib_stats_outcomes AS m
    WHERE m.at >= :since AND m.at < :until AND (:name IS NULL OR m.name = :name)
),
waited AS ({merge_waits}),
ran AS ({merge_runs})
SELECT p.at, p.name, p.outcome, sum(p.count) AS count, min(w.buckets) AS waits, min(r.buckets) AS runs
FROM part AS p
LEFT JOIN waited AS w ON w.at = p.at AND w.name = p.name AND w.outcome = p.outcome
LEFT JOIN ran AS r ON r.at = p.at AND r.name = p.name AND r.outcome = p.outcome
GROUP BY p.at, p.name, p.outcome
ORDER BY p.at, p.name, p.outcome;

-- name: add_depths
-- Record how deep the queue is in this minute, unless it is recorded.
INSERT OR IGNORE INTO tasklib_stats_depths (at, name, due, delayed, retrying, running)
SELECT CAST(strftime('%s', :now) AS INTEGER) / 60 * 60, b.value ->> 'name', b.value ->> 'due', b.value ->> 'delayed',
    b.value ->> 'retrying', b.value ->> 'running'
FROM json_each(:batch) AS b;

-- name: read_depths
-- How deep the queue was between two moments: the deepest of each step.
SELECT d.at - d.at % :step AS at, max(d.due) AS due, max(d.delayed) AS delayed, max(d.retrying) AS retrying,
    max(d.running) AS running
FROM (
    SELECT s.at, sum(s.due) AS due, sum(s.delayed) AS delayed, sum(s.retrying) AS retrying, sum(s.running) AS running
    FROM tasklib_stats_depths AS s
    WHERE s.at >= :since AND s.at < :until AND (:name IS NULL OR s.name = :name)
    GROUP BY s.at
) AS d
GROUP BY 1
ORDER BY 1;

-- name: thin_depths
-- Keep one look at the queue for each hour that is more than a day ago.
DELETE FROM tasklib_stats_depths
WHERE at < :hours_before AND EXISTS (
    SELECT 1 FROM tasklib_stats_depths AS e
    WHERE e.name = tasklib_stats_depths.name AND e.at < tasklib_stats_depths.at AND e.at >= tasklib_stats_depths.at - tasklib_stats_depths.at % 3600
);

-- name: forget_numbers
-- Forget what is too old to be shown.
DELETE FROM tasklib_stats_outcomes WHERE at < :oldest;
DELETE FROM tasklib_stats_depths WHERE at < :oldest;

-- name: read_statistics_turn
-- When the statistics were last kept, whether there is anything to count on, and what time it is.
SELECT b.counted_at, b.merged_at, :now AS now, EXISTS (SELECT 1 FROM tasks AS t WHERE t.seq > b.seq) AS behind
FROM tasklib_stats_position AS b;

-- name: lock_statistics
-- Take the turn of keeping the statistics; the transaction this is read in is SQLite's only writer already.
SELECT b.seq FROM tasklib_stats_position AS b;

-- name: keep_statistics
-- Note when the statistics were last merged.
UPDATE tasklib_stats_position SET merged_at = :now;

-- name: fold_totals
-- Move the position up to which rows are counted forward, a bounded way.
-- Differs by necessity: there is one writer, so no row can appear behind the position, and the trigger takes off itself
-- what is deleted; and an array of no rows is '[]', not NULL: no names at all would mean that the block holds no task.
INSERT INTO tasklib_stats_totals (name, count)
SELECT t.name, count(*) FROM tasks AS t
WHERE t.seq > (SELECT b.seq FROM tasklib_stats_position AS b) AND t.seq <= (SELECT b.seq FROM tasklib_stats_position AS b) + :step
GROUP BY t.name
ON CONFLICT (name) DO UPDATE SET count = count + excluded.count;
INSERT INTO tasklib_stats_blocks (number, oldest, newest, names)
SELECT (t.seq - 1) / :block_size, min(t.created_at), max(t.created_at),
    CASE WHEN count(DISTINCT t.name) <= :most_names THEN json_group_array(DISTINCT t.name) END
FROM tasks AS t
WHERE t.seq > (SELECT b.seq FROM tasklib_stats_position AS b) AND t.seq <= (SELECT b.seq FROM tasklib_stats_position AS b) + :step
GROUP BY 1
ON CONFLICT (number) DO UPDATE
SET oldest = min(oldest, excluded.oldest), newest = max(newest, excluded.newest), names = (
    SELECT CASE WHEN count(*) BETWEEN 1 AND :most_names THEN json_group_array(n.value) END
    FROM (
        SELECT e.value FROM json_each(tasklib_stats_blocks.names) AS e
        UNION SELECT e.value FROM json_each(excluded.names) AS e
    ) AS n
    WHERE tasklib_stats_blocks.names IS NOT NULL AND excluded.names IS NOT NULL
);
UPDATE tasklib_stats_position
SET seq = max(seq, min(seq + :step, coalesce((SELECT max(t.seq) FROM tasks AS t), 0))), counted_at = :now;
SELECT b.seq, coalesce((SELECT max(t.seq) FROM tasks AS t), 0) - b.seq AS behind FROM tasklib_stats_position AS b;

-- name: forget_blocks
-- Forget the blocks below the oldest task.
DELETE FROM tasklib_stats_blocks
WHERE number < (
    SELECT (coalesce((SELECT min(t.seq) FROM tasks AS t), max(b.seq) + 1) - 1) / :block_size FROM tasklib_stats_position AS b
);

-- name: measure_size
-- About how many rows there are: those counted, and the numbers drawn since.
SELECT
    coalesce((SELECT sum(t.count) FROM tasklib_stats_totals AS t), 0)
    + max(0, coalesce((SELECT max(t.seq) FROM tasks AS t), 0) - (SELECT b.seq FROM tasklib_stats_position AS b)) AS count;

-- name: count_quickly
-- How many tasks are in each state, by name, without reading what is finished: waiting tasks and failures by their indexes,
-- running ones by who holds them, and all by the totals.  What is left over is completed.
SELECT c.name, c.kind, sum(c.count) AS count, sum(c.later) AS later, sum(c.waiting) AS waiting
FROM (
    SELECT t.name, 'total' AS kind, t.count, 0 AS later, 0 AS waiting FROM tasklib_stats_totals AS t
    UNION ALL
    SELECT t.name, 'total', count(*), 0, 0 FROM tasks AS t WHERE t.seq > (SELECT b.seq FROM tasklib_stats_position AS b)
    GROUP BY t.name
    UNION ALL
    SELECT t.name, 'waiting', count(*), count(*) FILTER (WHERE t.due_at > :now), 0
    FROM tasks AS t INDEXED BY tasks_claim WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL
    GROUP BY t.name
    UNION ALL
    SELECT t.name, 'waiting', count(*), count(*) FILTER (WHERE t.due_at > :now), 0
    FROM tasks AS t INDEXED BY tasks_keyed WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL
    GROUP BY t.name
    UNION ALL
    SELECT t.name, t.trouble, count(*), count(*) FILTER (WHERE t.due_at > :now), count(t.due_at)
    FROM tasks AS t INDEXED BY tasks_trouble WHERE t.trouble IS NOT NULL
    GROUP BY t.name, t.trouble
    UNION ALL
    SELECT t.name, 'suspended', count(*), count(*) FILTER (WHERE t.due_at > :now), count(t.due_at)
    FROM tasks AS t INDEXED BY tasks_suspended WHERE t.waits_for IS NOT NULL
    GROUP BY t.name
    UNION ALL
    SELECT t.name, 'running', count(*), 0, 0
    FROM tasklib_claims AS h
    CROSS JOIN json_each(h.seqs) AS held
    JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
    GROUP BY t.name
) AS c
GROUP BY c.name, c.kind;

-- name: count_due
-- What is due and what runs, by name: waiting tasks by their indexes, running ones by who holds them.
SELECT c.name, sum(c.due) AS due, sum(c.running) AS running, max(c.oldest) AS oldest
FROM (
    SELECT t.name, count(*) AS due, 0 AS running, (julianday(:now) - julianday(min(t.due_at))) * 86400.0 AS oldest
    FROM tasks AS t INDEXED BY tasks_claim
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NULL AND t.due_at <= :now
    GROUP BY t.name
    UNION ALL
    SELECT t.name, count(*), 0, (julianday(:now) - julianday(min(t.due_at))) * 86400.0
    FROM tasks AS t INDEXED BY tasks_keyed
    WHERE t.due_at IS NOT NULL AND t.concurrency_key IS NOT NULL AND t.due_at <= :now
    GROUP BY t.name
    UNION ALL
    SELECT t.name, 0, count(*), NULL
    FROM tasklib_claims AS h
    CROSS JOIN json_each(h.seqs) AS held
    JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
    GROUP BY t.name
) AS c
GROUP BY c.name
ORDER BY c.name;

-- name: find_oldest_waiting
-- Of each name the task that has been due the longest, that one first: the head of every name and priority, and of
-- every key among the first 10,000.  SQLite takes the other columns from the row that has the minimum.
WITH RECURSIVE
head AS (
    SELECT t.seq, t.id, t.name, t.priority, t.due_at FROM tasks AS t
    WHERE t.seq = (
        SELECT f.seq FROM tasks AS f WHERE f.due_at IS NOT NULL AND f.concurrency_key IS NULL
        ORDER BY f.name, f.priority DESC, f.due_at, f.seq LIMIT 1
    )
    UNION ALL
    SELECT t.seq, t.id, t.name, t.priority, t.due_at FROM head AS h JOIN tasks AS t ON t.seq = coalesce(
        (
            SELECT n.seq FROM tasks AS n
            WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NULL AND n.name = h.name AND n.priority < h.priority
            ORDER BY n.priority DESC, n.due_at, n.seq LIMIT 1
        ),
        (
            SELECT n.seq FROM tasks AS n
            WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NULL AND n.name > h.name
            ORDER BY n.name, n.priority DESC, n.due_at, n.seq LIMIT 1
        )
    )
),
keyed AS (
    SELECT t.seq, t.id, t.name, t.concurrency_key, t.due_at, 1 AS place FROM tasks AS t
    WHERE t.seq = (
        SELECT f.seq FROM tasks AS f WHERE f.due_at IS NOT NULL AND f.concurrency_key IS NOT NULL
        ORDER BY f.concurrency_key, f.name, f.priority DESC, f.due_at, f.seq LIMIT 1
    )
    UNION ALL
    SELECT t.seq, t.id, t.name, t.concurrency_key, t.due_at, k.place + 1
    FROM keyed AS k JOIN tasks AS t ON t.seq = (
        SELECT n.seq FROM tasks AS n
        WHERE n.due_at IS NOT NULL AND n.concurrency_key IS NOT NULL AND n.concurrency_key > k.concurrency_key
        ORDER BY n.concurrency_key, n.name, n.priority DESC, n.due_at, n.seq LIMIT 1
    )
    WHERE k.place < 10000
)
SELECT w.id, w.name, min(w.due_at) AS due_at, (julianday(:now) - julianday(w.due_at)) * 86400.0 AS seconds FROM (
    SELECT h.id, h.name, h.due_at FROM head AS h
    UNION ALL
    SELECT k.id, k.name, k.due_at FROM keyed AS k
) AS w
WHERE w.due_at <= :now
GROUP BY w.name
ORDER BY due_at;
