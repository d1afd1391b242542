-- Numbers for charts and counts: what workers have done by minute, how deep the queue was, and how many rows there are.
-- min_compatible: 1

-- What was done, by minute (seconds since 1970): every worker adds rows now and then, merged later into one for each
-- minute and, after a day, for each hour.  Readers add up whatever there is.
CREATE TABLE {schema}.tasklib_metrics (
    at      bigint  NOT NULL,
    name    text    COLLATE "C" NOT NULL,
    outcome text    COLLATE "C" NOT NULL,
    count   bigint  NOT NULL,
    -- How long tasks waited after they were due, and how long they ran: {bucket: number}, see core/histogram.py.
    waits   jsonb   NOT NULL DEFAULT '{}',
    runs    jsonb   NOT NULL DEFAULT '{}',
    fresh   boolean NOT NULL DEFAULT true
);
CREATE INDEX tasklib_metrics_at ON {schema}.tasklib_metrics (at);

-- How many tasks waited and ran, looked at once a minute.
CREATE TABLE {schema}.tasklib_depths (
    at       bigint NOT NULL,
    name     text   COLLATE "C" NOT NULL,
    due      bigint NOT NULL,
    delayed  bigint NOT NULL,
    retrying bigint NOT NULL,
    running  bigint NOT NULL,
    PRIMARY KEY (at, name)
);

-- How many rows of each name there are up to a position (`seq`).  Rows after it are counted when somebody asks, and what
-- is deleted before it is noted by a trigger, so that inserting, claiming and finishing pay nothing for it.
CREATE TABLE {schema}.tasklib_totals (
    name  text   COLLATE "C" NOT NULL PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);

-- The position, and the next one: taken when every transaction that could still add rows before it has ended.
CREATE TABLE {schema}.tasklib_counted (
    only_row  boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (only_row),
    seq       bigint  NOT NULL DEFAULT 0,
    next_seq  bigint,
    next_xid  xid8,
    folded_at timestamptz,
    kept_at   timestamptz
) WITH (fillfactor = 50);
INSERT INTO {schema}.tasklib_counted DEFAULT VALUES;

-- What is known of each 10,000 positions up to that one: no task there is older, newer or of another name.  Lists leave
-- out what cannot hold a match.  No names: too many to be kept.
CREATE TABLE {schema}.tasklib_stretches (
    number bigint      NOT NULL PRIMARY KEY,
    oldest timestamptz NOT NULL,
    newest timestamptz NOT NULL,
    names  jsonb
) WITH (fillfactor = 50);

-- Chores that one worker at a time does: whose turn lasts until when, and how far it has come.
CREATE TABLE {schema}.tasklib_chores (
    name     text        COLLATE "C" NOT NULL PRIMARY KEY,
    until    timestamptz NOT NULL,
    position bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE {schema}.tasklib_deleted (
    name text     COLLATE "C" NOT NULL,
    seqs bigint[] NOT NULL
);

CREATE FUNCTION {schema}.tasklib_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        DELETE FROM {schema}.tasklib_totals;
        DELETE FROM {schema}.tasklib_stretches;
        DELETE FROM {schema}.tasklib_deleted;
        INSERT INTO {schema}.tasklib_counted DEFAULT VALUES
        ON CONFLICT (only_row) DO UPDATE SET seq = 0, next_seq = NULL, next_xid = NULL;
    ELSE
        INSERT INTO {schema}.tasklib_deleted (name, seqs) SELECT g.name, array_agg(g.seq) FROM gone AS g GROUP BY g.name;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_deleted AFTER DELETE ON {schema}.tasks
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_note_change();
-- Nothing of ours changes these: when somebody does by hand, everything is counted anew.
CREATE TRIGGER tasks_renamed AFTER UPDATE OF seq, name, created_at ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_note_change();
CREATE TRIGGER tasks_truncated AFTER TRUNCATE ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tasklib_note_change();
