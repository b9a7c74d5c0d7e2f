"""Fixtures of tests that kill."""

from __future__ import annotations

import pytest

from tests.support.kills import fill_tables


@pytest.fixture
def busy(mysql, database):
    """A fresh database of MySQL with `tests.support.kills.TABLES`."""
    fill_tables(mysql, database)
    return database
