"""Conditions hold columns, literals and comparisons; whatever else they hold is refused."""

from __future__ import annotations

import pytest

from tailrace.model.condition import MOST_CONDITION, both, condition_problem

COLUMNS = ("id", "Status", "created", "größe", "a`b")


@pytest.mark.parametrize(
    "condition",
    [
        "id > 3",
        "(id = -3 OR id IN (7, -8, .5, 1e3)) AND NOT (status IS NOT NULL)",
        "status = 'it''s' AND created >= DATE '2026-01-01'",
        "LOWER(status) LIKE '%; DROP TABLE x -- (%'",
        "COALESCE(status, created, '') BETWEEN 'a' AND 'b'",
        "größe <> 3\n  AND id <= 5",
        "status IS NOT DISTINCT FROM NULL",
    ],
)
@pytest.mark.parametrize("dialect", ["mysql", "oracle", "postgresql"])
def test_comparisons_of_columns_are_accepted(condition: str, dialect: str) -> None:
    assert condition_problem(condition, [*COLUMNS, "status"], dialect) is None


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("", "empty"),
        ("id > 3; DROP TABLE t", "`;`"),
        ("id > 3 -- x", "computes"),
        ("id > 3 # x", "`#`"),
        ("id > 3 /* x */", "`/`"),
        ("1) UNION SELECT (1", "do not match"),
        ("id IN (SELECT id FROM u)", "`SELECT`"),
        ("id = 1 UNION id = 1", "`UNION`"),
        ("other = 3", "`other`"),
        ("mysql.user = 1", "`mysql`"),
        ("id.x = 1", "`.`"),
        ("SLEEP(100) = 0", "`SLEEP`"),
        ("pg_terminate_backend(1)", "`pg_terminate_backend`"),
        ("id (1)", "no known function"),
        ("'sleep'(1) = 1", "no known function"),
        ("DATE (status) = 3", "no known function"),
        ("LOWER = 3", "`LOWER`"),
        ("id = 1::int", "`:`"),
        ("id = @x", "`@`"),
        ("id = $1", "`$`"),
        ("id = ?", "`?`"),
        ("id = 1x", "`1`"),
        ("id - 1 > 0", "computes"),
        ("id = --1", "computes"),
        ("id / 0 = 1", "`/`"),
        ("id = 'a\\'' OR 1=1", "backslash"),
        ("id = 'a\x00'", "control"),
        ("id = 'open", "`'`"),
        ("(id = 1", "do not match"),
        ("id = " + "1" * MOST_CONDITION, "characters"),
    ],
)
@pytest.mark.parametrize("dialect", ["mysql", "oracle", "postgresql"])
def test_everything_else_is_refused_with_its_reason(condition: str, problem: str, dialect: str) -> None:
    found = condition_problem(condition, COLUMNS, dialect)
    assert found is not None
    assert problem in found


def test_names_are_quoted_and_folded_as_the_database_does() -> None:
    assert condition_problem("`ID` = 1 AND `a``b` = 2 AND STATUS = 3", COLUMNS, "mysql") is None
    assert condition_problem("STATUS = 3", COLUMNS, "postgresql") is not None
    assert condition_problem('"Status" = 3 AND ID = 1', COLUMNS, "postgresql") is None
    assert condition_problem('"status" = 3', COLUMNS, "postgresql") is not None
    assert condition_problem("`id` = 1", COLUMNS, "postgresql") is not None
    assert condition_problem('"Status" = 3 AND Id = 1', COLUMNS, "oracle") is None
    assert condition_problem('"status" = 3', COLUMNS, "oracle") is not None
    assert condition_problem("`id` = 1", COLUMNS, "oracle") is not None
    assert condition_problem("`nothing` = 1", COLUMNS, "mysql") is not None
    assert condition_problem('id = "text"', COLUMNS, "mysql") is not None


def test_two_conditions_become_one() -> None:
    assert both("id = 1", "id = 1") == "id = 1"
    assert both("a OR b", "c AND d") == "(a OR b) OR (c AND d)"
