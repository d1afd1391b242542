-- Limits that hold across all workers: how many tasks start in a second, and how many run at once.
-- min_compatible: 1

-- Tasks that may start in a second; the bucket below holds one second's worth, and at least one.
ALTER TABLE tasklib_controls ADD COLUMN rate REAL CHECK (rate > 0);
ALTER TABLE tasklib_controls ADD COLUMN tokens REAL;
ALTER TABLE tasklib_controls ADD COLUMN refilled_at TEXT;
-- Tasks that may run at once.
ALTER TABLE tasklib_controls ADD COLUMN max_running INTEGER CHECK (max_running > 0);
