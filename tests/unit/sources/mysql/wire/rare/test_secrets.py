"""Statements leave the decoder without the secrets in them."""

from __future__ import annotations

import pytest

from tailrace.sources.mysql.wire.rare.secrets import without_secrets

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (id INT) ENGINE=FEDERATED CONNECTION='mysql://u:s3cr3t@h:3306/d/t'",
        'create table t (id int) engine=federated connection = "mysql://u:s3cr3t@h/d/t"',
        "CREATE TABLE t (id INT) /*!50100 CONNECTION='mysql://u:s3cr3t@h/d/t' */",
        "CREATE TABLE t (id INT) -- mysql://u:s3cr3t@h/d/t\n",
        "CREATE TABLE t (id INT) /* password='s3cr3t' */",
        "CREATE TABLE t (id INT) ENGINE=CONNECT OPTION_LIST='user=u,password=s3cr3t'",
        'CREATE TABLE t (id INT) ENGINE=SPIDER COMMENT=\'host "h", password "s3cr3t", port "1"\'',
        "CREATE TABLE t (id INT) PASSWORD 's3cr3t'",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD 's3cr3t')",
        "CREATE USER u IDENTIFIED BY 's3cr3t'",
        "ALTER USER u IDENTIFIED WITH x BY 's3cr3t' REPLACE 's3cr3t'",
        "ALTER USER u IDENTIFIED WITH 'x' AS 's3cr3t'",
        "SET PASSWORD FOR u = PASSWORD('s3cr3t')",
        "CREATE TABLE t (id INT) CONNECTION='it''s s3cr3t'",
        r"CREATE TABLE t (id INT) CONNECTION='it\'s s3cr3t'",
    ],
)
def test_secrets_are_hidden(statement: str) -> None:
    hidden = without_secrets(statement)
    assert SECRET not in hidden
    assert "***" in hidden
    assert hidden.split()[0] == statement.split(maxsplit=1)[0]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD password VARCHAR(9) DEFAULT 'x' COMMENT 'as text'",
        "ALTER TABLE t ADD `connection` VARCHAR(9), COMMENT = 'http://example.org/a@b'",
        "CREATE TABLE t (id INT) COMMENT 'the password of a user' -- as it is",
        "INSERT INTO t VALUES ('IDENTIFIED BY', 'x')",
        "",
    ],
)
def test_other_statements_stay_as_they_are(statement: str) -> None:
    assert without_secrets(statement) == statement
