-- Limits that hold across all workers: how many tasks start in a second, and how many run at once.
-- min_compatible: 1

ALTER TABLE {schema}.tasklib_controls
    -- Tasks that may start in a second; the bucket below holds one second's worth, and at least one.
    ADD COLUMN rate        double precision CHECK (rate > 0),
    ADD COLUMN tokens      double precision,
    ADD COLUMN refilled_at timestamptz,
    -- Tasks that may run at once.
    ADD COLUMN max_running integer CHECK (max_running > 0),
    -- Grows whenever a limited task is claimed: a claim that has not seen the claim before it counts nothing and gives way.
    ADD COLUMN version     integer NOT NULL DEFAULT 0;
