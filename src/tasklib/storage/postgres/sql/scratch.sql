-- name: drop_schema
-- Remove the schema of the queue with everything in it.
-- Only here: on SQLite the file is deleted.
DROP SCHEMA {schema} CASCADE;
