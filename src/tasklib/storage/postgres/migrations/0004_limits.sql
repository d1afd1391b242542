-- Limits that hold across all workers: how many tasks start in a second, and how many run at once, by name and by key.
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

-- How many tasks of a concurrency key may run at once, and under the empty key of every other; 0 is unlimited.  With a
-- name those of this name alone.  A task stands under one limit: of its name if there is one, then of its key.
CREATE TABLE {schema}.tasklib_key_limits (
    name        text    COLLATE "C" NOT NULL DEFAULT '',
    key         text    COLLATE "C" NOT NULL,
    max_running integer NOT NULL CHECK (max_running >= 0),
    PRIMARY KEY (name, key)
);

-- Where a task with a concurrency key may be able to start: the keys that are worth a look, in the order of their
-- turns.  A hint is written by the transaction that made a task wait (under its name, for when it is due) or freed a
-- slot (under the empty name), so that none is lost; who looks at a key takes all its hints away, and leaves one behind
-- if another task could start.  Nobody waits for anybody: hints are only ever inserted and deleted.
CREATE TABLE {schema}.tasklib_hints (
    id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    key      text        COLLATE "C" NOT NULL,
    name     text        COLLATE "C" NOT NULL,
    priority integer     NOT NULL,
    ready_at timestamptz NOT NULL
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasklib_hints_turn ON {schema}.tasklib_hints (name, priority DESC, ready_at, id);
CREATE INDEX tasklib_hints_key ON {schema}.tasklib_hints (key);

-- It runs as the owner of the tables: who may store a task needs no right to read others', nor to write hints.
CREATE FUNCTION {schema}.tasklib_hint() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        IF OLD.slot_key IS NOT NULL AND (TG_OP = 'DELETE' OR NEW.slot_key IS DISTINCT FROM OLD.slot_key) THEN
            INSERT INTO {schema}.tasklib_hints (key, name, priority, ready_at) VALUES (OLD.slot_key, '', 0, now());
        END IF;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        -- One hint is enough for tasks of one transaction that wait for the same: they become visible together.
        IF NEW.concurrency_key IS NOT NULL AND NEW.due_at IS NOT NULL AND coalesce((
            SELECT t.xmin <> pg_current_xact_id()::xid
            FROM {schema}.tasks AS t
            WHERE t.concurrency_key = NEW.concurrency_key AND t.name = NEW.name AND t.priority = NEW.priority
                AND t.due_at = NEW.due_at AND t.seq < NEW.seq
            ORDER BY t.seq DESC LIMIT 1
        ), true) THEN
            INSERT INTO {schema}.tasklib_hints (key, name, priority, ready_at)
            VALUES (NEW.concurrency_key, NEW.name, NEW.priority, NEW.due_at);
        END IF;
    END IF;
    IF EXISTS (SELECT FROM {schema}.tasklib_idle WHERE until > now()) THEN
        PERFORM {schema}.tasklib_call(TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;

-- Nobody hangs it on a table of their own.
REVOKE EXECUTE ON FUNCTION {schema}.tasklib_hint() FROM PUBLIC;

-- The conditions spare tasks without a key the call.
CREATE TRIGGER tasks_hint_insert AFTER INSERT ON {schema}.tasks
    FOR EACH ROW WHEN (NEW.concurrency_key IS NOT NULL) EXECUTE FUNCTION {schema}.tasklib_hint();
CREATE TRIGGER tasks_hint_update AFTER UPDATE ON {schema}.tasks
    FOR EACH ROW WHEN (
        (NEW.concurrency_key IS NOT NULL OR OLD.concurrency_key IS NOT NULL) AND (
            OLD.slot_key IS DISTINCT FROM NEW.slot_key OR OLD.due_at IS DISTINCT FROM NEW.due_at
            OR OLD.concurrency_key IS DISTINCT FROM NEW.concurrency_key OR OLD.priority <> NEW.priority
            OR OLD.name <> NEW.name
        )
    ) EXECUTE FUNCTION {schema}.tasklib_hint();
CREATE TRIGGER tasks_hint_delete AFTER DELETE ON {schema}.tasks
    FOR EACH ROW WHEN (OLD.slot_key IS NOT NULL) EXECUTE FUNCTION {schema}.tasklib_hint();
