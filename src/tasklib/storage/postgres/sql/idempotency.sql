-- name: take_key
-- Take an idempotency key; no row means that it is taken already.
INSERT INTO {schema}.tasklib_idempotency (key, fingerprint, created_at)
SELECT :key::text, :fingerprint::text, coalesce(:now::timestamptz, now())
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: get_key
-- What was answered under an idempotency key.
SELECT k.fingerprint, k.answer::text AS answer FROM {schema}.tasklib_idempotency AS k WHERE k.key = :key::text;

-- name: answer_key
-- Keep what was answered.
UPDATE {schema}.tasklib_idempotency AS k SET answer = :answer::jsonb WHERE k.key = :key::text;

-- name: forget_keys
-- Remove idempotency keys that are too old to be sent again.
DELETE FROM {schema}.tasklib_idempotency AS k
WHERE k.created_at < :before::timestamptz;
