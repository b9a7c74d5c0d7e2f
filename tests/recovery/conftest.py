"""Fixtures of tests that kill."""

from __future__ import annotations

import pytest

from tailrace.enumerator import enumerator
from tests.support.kills import fill_tables


@pytest.fixture
def busy(mysql, database):
    """A fresh database of MySQL with `tests.support.kills.TABLES`."""
    fill_tables(mysql, database)
    return database


@pytest.fixture
def _soon(monkeypatch):
    """Offsets move over a part of the log without captured changes in moments, not after ten seconds."""
    monkeypatch.setattr(enumerator, "QUIET_ADVANCE_S", 0.2)
