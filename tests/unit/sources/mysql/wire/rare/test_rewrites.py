"""Schema changes that leave every row as it is are known; all others count as rewrites."""

from __future__ import annotations

import pytest

from tailrace.sources.mysql.wire.rare.rewrites import rewrites_rows

HARMLESS = [
    "CREATE TABLE t (id INT)",
    "create table if not exists s.t (id int not null default 5)",
    "CREATE UNIQUE INDEX i ON t (a)",
    "DROP INDEX i ON t",
    "DROP VIEW v",
    "ALTER DATABASE d CHARACTER SET utf8mb4",
    "ALTER TABLE t ADD COLUMN c INT",
    "ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET latin1 COMMENT 'NOT NULL' AFTER b",
    "ALTER TABLE t ADD COLUMN c INT NULL DEFAULT NULL FIRST",
    "ALTER TABLE t ADD COLUMN (c INT, d DECIMAL(10,2))",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT",
    "ALTER TABLE t ADD COLUMN c TIMESTAMP NULL",
    "ALTER TABLE t ADD INDEX (c), ADD CONSTRAINT u UNIQUE (d), ADD FOREIGN KEY (a) REFERENCES x (id)",
    "ALTER TABLE t DROP INDEX i, DROP FOREIGN KEY f, DROP KEY k, DROP CHECK c",
    "ALTER TABLE `s`.`add` COMMENT = 'x, ADD c INT DEFAULT 5', ALGORITHM=INPLACE, LOCK=NONE",
    "ALTER TABLE t ALTER COLUMN c SET DEFAULT 5",
    "ALTER TABLE t ALTER c DROP DEFAULT",
    "ALTER TABLE t RENAME INDEX a TO b",
    "ALTER TABLE t ADD VECTOR INDEX (v)",
    "ALTER TABLE t ADD PARTITION (PARTITION p3 VALUES LESS THAN (30))",
    "ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION n0 VALUES LESS THAN (5))",
    "/* a comment */ ALTER TABLE t ENGINE=InnoDB",
    "ALTER TABLE t AUTO_INCREMENT = 100",
]
REWRITES = [
    "RENAME TABLE t TO t_old, t_new TO t",
    "TRUNCATE t",
    "TRUNCATE TABLE s.t",
    "DROP TABLE IF EXISTS t",
    "DROP DATABASE d",
    "CREATE OR REPLACE TABLE t (id INT)",
    "ALTER TABLE t ADD COLUMN c INT DEFAULT 5",
    "ALTER TABLE t ADD COLUMN c VARCHAR(9) DEFAULT 'x'",
    "ALTER TABLE t ADD COLUMN c INT NOT NULL",
    "ALTER TABLE t ADD vector INT DEFAULT 5",
    "ALTER TABLE t DROP vector",
    "ALTER TABLE t ADD COLUMN (c INT, d INT DEFAULT 1)",
    "ALTER TABLE t ADD c TIMESTAMP",
    "ALTER TABLE t ADD COLUMN c INT AS (a + 1) STORED",
    "ALTER TABLE t ADD COLUMN c INT GENERATED ALWAYS AS (a + 1) VIRTUAL",
    "ALTER TABLE t ADD id BIGINT AUTO_INCREMENT PRIMARY KEY",
    "ALTER TABLE t ADD PRIMARY KEY (a)",
    "ALTER TABLE t ADD CONSTRAINT PRIMARY KEY (a)",
    "ALTER TABLE t DROP PRIMARY KEY",
    "ALTER TABLE t DROP COLUMN c",
    "ALTER TABLE t DROP c",
    "ALTER TABLE t RENAME COLUMN a TO b",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE t CHANGE a b INT",
    "ALTER TABLE t MODIFY a DECIMAL(10,1)",
    "ALTER TABLE t COMMENT 'x', MODIFY a DECIMAL(10,1)",
    "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
    "ALTER TABLE t TRUNCATE PARTITION p0",
    "ALTER TABLE t DROP PARTITION p0",
    "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",
    "ALTER TABLE t DISCARD TABLESPACE",
    "ALTER TABLE t IMPORT TABLESPACE",
    "ALTER TABLE t ALTER COLUMN c SET INVISIBLE",
    "ALTER IGNORE TABLE t ADD UNIQUE (a)",
    "ALTER TABLE t ADD SYSTEM VERSIONING",
    "ALTER TABLE t SOMETHING NEW",
    "/*!80000 ALTER TABLE t ADD c INT DEFAULT 5 */",
]


@pytest.mark.parametrize("statement", HARMLESS)
def test_statement_that_changes_no_row_is_known(statement: str) -> None:
    assert not rewrites_rows(statement)


@pytest.mark.parametrize("statement", REWRITES)
def test_statement_that_changes_rows_or_is_not_understood_is_a_rewrite(statement: str) -> None:
    assert rewrites_rows(statement)
