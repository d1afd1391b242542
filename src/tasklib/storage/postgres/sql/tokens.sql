-- fragment: token_columns
k.id, k.name, k.role, k.begins, k.created_at, k.expires_at, k.last_used_at, k.revoked_at,
    (k.revoked_at IS NULL AND coalesce(k.expires_at > coalesce(:now::timestamptz, now()), true)) AS valid

-- name: create_token
-- Keep the hash of a new token.
INSERT INTO {schema}.tasklib_tokens AS k (id, name, role, hash, begins, expires_at, created_at)
SELECT
    :id::uuid, :name::text, :role::text, :hash::text, :begins::text, :expires_at::timestamptz,
    coalesce(:now::timestamptz, now())
RETURNING {token_columns};

-- name: find_token
-- The token of this hash, and whether its last use is worth noting again.
SELECT
    {token_columns},
    coalesce(k.last_used_at < coalesce(:now::timestamptz, now()) - interval '1 minute', true) AS stale
FROM {schema}.tasklib_tokens AS k WHERE k.hash = :hash::text;

-- name: touch_token
-- Note that a token was used.
UPDATE {schema}.tasklib_tokens AS k SET last_used_at = coalesce(:now::timestamptz, now()) WHERE k.id = :id::uuid;

-- name: any_token
-- Whether a token was ever made.
SELECT EXISTS (SELECT 1 FROM {schema}.tasklib_tokens) AS found;

-- name: list_tokens
-- Every token, the newest first.
SELECT {token_columns} FROM {schema}.tasklib_tokens AS k ORDER BY k.created_at DESC, k.id;

-- name: revoke_token
-- Refuse a token from now on.
UPDATE {schema}.tasklib_tokens AS k SET revoked_at = coalesce(:now::timestamptz, now()) WHERE k.id = :id::uuid
RETURNING {token_columns};
