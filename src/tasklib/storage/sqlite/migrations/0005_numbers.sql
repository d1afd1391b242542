-- Numbers for charts and counts: what workers have done by minute, how deep the queue was, and how many rows there are.
-- min_compatible: 1

-- What was done, by minute (seconds since 1970), as on PostgreSQL.
CREATE TABLE tasklib_metrics (
    at      INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    outcome TEXT    NOT NULL,
    count   INTEGER NOT NULL,
    waits   TEXT    NOT NULL DEFAULT '{}',
    runs    TEXT    NOT NULL DEFAULT '{}',
    fresh   INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX tasklib_metrics_at ON tasklib_metrics (at);

CREATE TABLE tasklib_depths (
    at       INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    due      INTEGER NOT NULL,
    delayed  INTEGER NOT NULL,
    retrying INTEGER NOT NULL,
    running  INTEGER NOT NULL,
    PRIMARY KEY (at, name)
) WITHOUT ROWID;

-- How many rows of each name there are up to a position, as on PostgreSQL.  There is one writer, so the trigger can
-- correct the number itself, and no transaction can add a row before the position.
CREATE TABLE tasklib_totals (
    name  TEXT    NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tasklib_counted (
    only_row  INTEGER NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
    seq       INTEGER NOT NULL DEFAULT 0,
    folded_at TEXT,
    kept_at   TEXT
);
INSERT INTO tasklib_counted DEFAULT VALUES;

CREATE TRIGGER tasks_deleted AFTER DELETE ON tasks WHEN old.seq <= (SELECT seq FROM tasklib_counted)
BEGIN
    UPDATE tasklib_totals SET count = count - 1 WHERE name = old.name;
END;

-- What is known of each 10,000 positions up to that one, as on PostgreSQL.
CREATE TABLE tasklib_stretches (
    number INTEGER NOT NULL PRIMARY KEY,
    oldest TEXT    NOT NULL,
    newest TEXT    NOT NULL,
    names  TEXT
);

CREATE TRIGGER tasks_renamed AFTER UPDATE OF seq, name, created_at ON tasks WHEN (SELECT seq FROM tasklib_counted) > 0
BEGIN
    DELETE FROM tasklib_totals;
    DELETE FROM tasklib_stretches;
    UPDATE tasklib_counted SET seq = 0;
END;

-- Chores that one worker at a time does: whose turn lasts until when, and how far it has come.
CREATE TABLE tasklib_chores (
    name     TEXT    NOT NULL PRIMARY KEY,
    until    TEXT    NOT NULL,
    position INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
