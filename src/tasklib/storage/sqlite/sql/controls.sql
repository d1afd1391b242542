-- name: pause
-- Stop starting tasks of one name, or with the empty name of all; running ones finish.
INSERT INTO tasklib_controls (name, paused_at, paused_by, reason)
VALUES (:name, :now, :by, :reason)
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce(tasklib_controls.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
    reason = excluded.reason
RETURNING name;

-- name: resume
-- Start tasks of one name, or with the empty name everything that was paused as a whole, again.
UPDATE tasklib_controls SET paused_at = NULL, paused_by = NULL, reason = NULL
WHERE name = :name AND paused_at IS NOT NULL
RETURNING name;

-- name: list_pauses
-- What is paused now, by whom and why.
SELECT c.name, c.paused_at, c.paused_by, c.reason
FROM tasklib_controls AS c WHERE c.paused_at IS NOT NULL ORDER BY c.name;

-- name: set_rate
-- Let at most so many tasks of one name, or with the empty name of all, start in a second; NULL lifts the limit.
INSERT INTO tasklib_controls (name, rate, burst, tokens, refilled_at)
VALUES (:name, :rate, :burst, coalesce(:burst, max(1.0, :rate)), :now)
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, burst = excluded.burst, refilled_at = excluded.refilled_at,
    -- What is in the bucket stays, as far as the new one holds it.
    tokens = CASE WHEN excluded.rate IS NOT NULL THEN min(excluded.tokens, coalesce(
        tokens + max(0.0, (julianday(excluded.refilled_at) - julianday(refilled_at)) * 86400.0) * rate, excluded.tokens
    )) END
RETURNING name;

-- name: set_max_running
-- Let at most so many tasks of one name, or with the empty name of all, run at once; NULL lifts the limit.
INSERT INTO tasklib_controls (name, max_running)
VALUES (:name, :count)
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running
RETURNING name;

-- name: declare_limits
-- Store the limits that code declares, each only if the declaration is not the one last stored: until it changes, what
-- people have set since holds.  A name without a declaration loses the limits of the one it had.
INSERT INTO tasklib_controls (name, rate, burst, tokens, refilled_at, max_running, declared)
SELECT g.name, g.declared ->> 'rate', g.declared ->> 'burst',
    coalesce(g.declared ->> 'burst', max(1.0, g.declared ->> 'rate')), :now, g.declared ->> 'max_running', g.declared
FROM (
    SELECT l.value ->> 'name' AS name, nullif(l.value -> 'declared', 'null') AS declared FROM json_each(:limits) AS l
) AS g
WHERE g.declared IS NOT NULL OR EXISTS (
    SELECT 1 FROM tasklib_controls AS o WHERE o.name = g.name AND o.declared IS NOT NULL
)
ORDER BY g.name
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, burst = excluded.burst, tokens = excluded.tokens, refilled_at = excluded.refilled_at,
    max_running = excluded.max_running, declared = excluded.declared
WHERE declared IS NOT excluded.declared
RETURNING name;

-- name: list_limits
-- The limits in force, by name; the empty name is for all.
SELECT c.name, c.rate, c.burst, c.max_running, {bucket} AS tokens, c.declared
FROM tasklib_controls AS c WHERE {is_limited} ORDER BY c.name;

-- name: take_limits
-- The limits of these names and what each leaves.
-- Differs by necessity: the transaction this is read in is SQLite's only writer, so there is nothing to lock.
SELECT c.name, 1 AS locked, c.rate, c.burst, c.max_running, {bucket} AS tokens, c.declared
FROM tasklib_controls AS c
WHERE {is_limited} AND (c.name = '' OR c.name IN (SELECT n.value FROM json_each(:names) AS n));

-- name: count_running
-- How many tasks of each name instances hold.
SELECT t.name, count(*) AS count
FROM tasklib_claims AS h CROSS JOIN json_each(h.seqs) AS held
CROSS JOIN tasks AS t ON t.seq = held.value AND t.version = h.versions ->> held.key AND t.state = 'running'
GROUP BY t.name;

-- name: spend_tokens
-- Take one token from the rate of each task's name, and from that of everything.
UPDATE tasklib_controls AS c
SET tokens = {bucket} - used.count, refilled_at = CASE WHEN {is_set_back} THEN :now ELSE max(:now, c.refilled_at) END
FROM (
    SELECT l.name, count(*) AS count
    FROM tasklib_controls AS l CROSS JOIN json_each(:seqs) AS s CROSS JOIN tasks AS t ON t.seq = s.value AND l.name IN ('', t.name)
    WHERE l.rate IS NOT NULL GROUP BY l.name
) AS used
WHERE c.name = used.name;

-- fragment: bucket
-- The tokens there are now; a full bucket where the clock was set back, which would else stay empty until it catches up.
min(coalesce(c.burst, max(1.0, c.rate)), c.tokens + CASE
    WHEN {is_set_back} THEN coalesce(c.burst, max(1.0, c.rate)) - c.tokens
    ELSE max(0.0, (julianday(:now) - julianday(c.refilled_at)) * 86400.0) * c.rate
END)

-- fragment: is_set_back
-- Whether the bucket was filled later than now, by more than transactions that overlap can explain.
julianday(c.refilled_at) - julianday(:now) > 10.0 / 86400.0
