-- Run on every connection when it is opened.
-- A claim collects here what it is about to take; a temporary table lives in memory and is never written to the file.
PRAGMA temp_store = MEMORY;
-- An index made for one statement is made by reading the whole table; every statement here has one to use.
PRAGMA automatic_index = OFF;
-- Whoever wants the tasks in it says `seq IN (SELECT +p.seq …)`: without the plus SQLite would look up each task of the
-- table here instead of each of these in the table.
CREATE TEMPORARY TABLE IF NOT EXISTS tasklib_picked (ord INTEGER NOT NULL PRIMARY KEY, seq INTEGER NOT NULL UNIQUE);
-- And the background removal of old tasks what it has looked at.
CREATE TEMPORARY TABLE IF NOT EXISTS tasklib_swept (looked INTEGER, last INTEGER, fresh INTEGER);
