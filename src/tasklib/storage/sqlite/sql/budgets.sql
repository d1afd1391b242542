-- name: set_budget
-- Store a budget; what is in it stays, as far as the new one holds it.  No row if it is the same as before.
INSERT INTO tasklib_budgets (name, rate, burst, tokens, refilled_at)
VALUES (:name, :rate, :burst, :burst, :now)
ON CONFLICT (name) DO UPDATE
SET rate = excluded.rate, burst = excluded.burst, refilled_at = excluded.refilled_at,
    tokens = min(excluded.burst, burst,
        tokens + max(0.0, (julianday(excluded.refilled_at) - julianday(refilled_at)) * 86400.0) * rate)
WHERE rate <> excluded.rate OR burst <> excluded.burst
RETURNING name;

-- name: remove_budget
-- Remove a budget; no row if there is none.
DELETE FROM tasklib_budgets WHERE name = :name RETURNING name;

-- name: list_budgets
-- One budget, or all, with what is left now.
SELECT b.name, b.rate, b.burst, {budget_left} AS tokens
FROM tasklib_budgets AS b
WHERE :name IS NULL OR b.name = :name
ORDER BY b.name;

-- name: take_from_budget
-- Take tokens if there are enough; no row if not.
UPDATE tasklib_budgets AS b
SET tokens = {budget_left} - :cost,
    refilled_at = CASE WHEN {is_budget_set_back} THEN :now ELSE max(:now, b.refilled_at) END
WHERE b.name = :name AND {budget_left} >= :cost
RETURNING name;

-- name: wake_for_budget
-- Let tasks look again that wait for a budget which has changed.
UPDATE tasks
SET waits_for = NULL, next_retry_at = NULL, updated_at = :now
WHERE waits_for = 'budget ' || :name
RETURNING seq;

-- name: find_shortage
-- How many tokens a workflow is short of, by the budgets it waits for.
SELECT b.name, s.value ->> 'cost' AS cost, b.burst, {budget_left} AS tokens
FROM tasklib_steps AS s CROSS JOIN tasklib_budgets AS b ON b.name = s.value ->> 'budget'
WHERE s.task_id = :id AND s.kind = 'spend' AND s.state = 'open'
ORDER BY s.number;

-- fragment: budget_left
-- The tokens there are now; a full budget where the clock was set back.
CASE WHEN {is_budget_set_back} THEN b.burst
    ELSE min(b.burst, b.tokens + max(0.0, (julianday(:now) - julianday(b.refilled_at)) * 86400.0) * b.rate) END

-- fragment: is_budget_set_back
-- Whether it was refilled later than now, by more than transactions that overlap can explain.
julianday(b.refilled_at) - julianday(:now) > 10.0 / 86400.0
