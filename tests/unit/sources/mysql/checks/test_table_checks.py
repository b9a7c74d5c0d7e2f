"""The scope of the GRANT statements in findings."""

import pytest

from tailrace.sources.mysql.checks.table_checks import whole_database


@pytest.mark.parametrize(
    ("name", "scope"),
    [("shop", "`shop`.*"), ("a_b", r"`a\_b`.*"), ("50%_off", r"`50\%\_off`.*"), ("a`b", "`a``b`.*")],
)
def test_wildcards_in_a_database_name_are_escaped(name: str, scope: str) -> None:
    assert whole_database(name) == scope
