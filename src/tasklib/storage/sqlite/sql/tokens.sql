-- fragment: token_columns
k.id, k.name, k.role, k.begins, k.created_at, k.expires_at, k.last_used_at, k.revoked_at,
    (k.revoked_at IS NULL AND coalesce(k.expires_at > :now, true)) AS valid

-- name: create_token
-- Keep the hash of a new token.
INSERT INTO tasklib_tokens (id, name, role, hash, begins, expires_at, created_at)
VALUES (:id, :name, :role, :hash, :begins, :expires_at, :now);
SELECT {token_columns} FROM tasklib_tokens AS k WHERE k.id = :id;

-- name: find_token
-- The token of this hash, and whether its last use is worth noting again.
SELECT
    {token_columns},
    coalesce(k.last_used_at < strftime('%Y-%m-%d %H:%M:%f000', :now, '-1 minute'), true) AS stale
FROM tasklib_tokens AS k WHERE k.hash = :hash;

-- name: touch_token
-- Note that a token was used.
UPDATE tasklib_tokens SET last_used_at = :now WHERE id = :id;

-- name: any_token
-- Whether a token was ever made.
SELECT EXISTS (SELECT 1 FROM tasklib_tokens) AS found;

-- name: list_tokens
-- Every token, the newest first.
SELECT {token_columns} FROM tasklib_tokens AS k ORDER BY k.created_at DESC, k.id;

-- name: revoke_token
-- Refuse a token from now on.
UPDATE tasklib_tokens SET revoked_at = :now WHERE id = :id;
SELECT {token_columns} FROM tasklib_tokens AS k WHERE k.id = :id;
