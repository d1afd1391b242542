-- name: take_key
-- Take an idempotency key; no row means that it is taken already.
INSERT INTO tasklib_idempotency (key, fingerprint, created_at)
VALUES (:key, :fingerprint, :now)
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: get_key
-- What was answered under an idempotency key.
SELECT k.fingerprint, k.answer FROM tasklib_idempotency AS k WHERE k.key = :key;

-- name: answer_key
-- Keep what was answered.
UPDATE tasklib_idempotency SET answer = :answer WHERE key = :key;

-- name: forget_keys
-- Remove idempotency keys that are too old to be sent again.
DELETE FROM tasklib_idempotency
WHERE created_at < :before;
