-- name: set_budget
-- Store a budget; what is in it stays, as far as the new one holds it.  No row if it is the same as before.
INSERT INTO {schema}.tasklib_budgets AS b (name, rate, burst, tokens, refilled_at)
VALUES (:name::text, :rate::float8, :burst::float8, :burst::float8, coalesce(:now::timestamptz, now()))
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, burst = excluded.burst, refilled_at = excluded.refilled_at,
    tokens = least(excluded.burst, b.burst,
        b.tokens + greatest(0, extract(epoch FROM excluded.refilled_at - b.refilled_at)::float8) * b.rate)
WHERE b.rate <> excluded.rate OR b.burst <> excluded.burst
RETURNING b.name;

-- name: remove_budget
-- Remove a budget; no row if there is none.
DELETE FROM {schema}.tasklib_budgets AS b WHERE b.name = :name::text RETURNING b.name;

-- name: list_budgets
-- One budget, or all, with what is left now.
SELECT b.name, b.rate, b.burst, {budget_left} AS tokens
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS clock CROSS JOIN {schema}.tasklib_budgets AS b
WHERE :name::text IS NULL OR b.name = :name::text
ORDER BY b.name;

-- name: take_from_budget
-- Take tokens if there are enough; no row if not.  Who waited for another spender sees what that has left.
UPDATE {schema}.tasklib_budgets AS b
SET tokens = {budget_left} - :cost::float8,
    refilled_at = CASE WHEN {is_budget_set_back} THEN clock.now ELSE greatest(clock.now, b.refilled_at) END
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS clock
WHERE b.name = :name::text AND {budget_left} >= :cost::float8
RETURNING b.name;

-- name: wake_for_budget
-- Let tasks look again that wait for a budget which has changed; one that somebody holds is about to look anyway.
UPDATE {schema}.tasks AS t
SET waits_for = NULL, next_retry_at = NULL, updated_at = coalesce(:now::timestamptz, now())
WHERE t.id = ANY (ARRAY(
    SELECT w.id FROM {schema}.tasks AS w WHERE w.waits_for = 'budget ' || :name::text
    ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING t.seq;

-- name: find_shortage
-- How many tokens a workflow is short of, by the budgets it waits for.
SELECT b.name, (s.value ->> 'cost')::float8 AS cost, b.burst, {budget_left} AS tokens
FROM (SELECT coalesce(:now::timestamptz, now()) AS now) AS clock
CROSS JOIN {schema}.tasklib_steps AS s JOIN {schema}.tasklib_budgets AS b ON b.name = s.value ->> 'budget'
WHERE s.task_id = :id::uuid AND s.kind = 'spend' AND s.state = 'open'
ORDER BY s.number;

-- fragment: budget_left
-- The tokens there are now; a full budget where the clock was set back.
CASE WHEN {is_budget_set_back} THEN b.burst
    ELSE least(b.burst, b.tokens + greatest(0, extract(epoch FROM clock.now - b.refilled_at)::float8) * b.rate) END

-- fragment: is_budget_set_back
-- Whether it was refilled later than now, by more than transactions that overlap can explain.
b.refilled_at > clock.now + interval '10 seconds'
