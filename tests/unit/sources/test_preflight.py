"""How findings are rendered and when they refuse capture."""

import pickle

import pytest

from tailrace.errors import PreflightError
from tailrace.sources.preflight import Finding, Severity, render, require

_FINE = Finding("log_bin", "ON", "ON")
_RISKY = Finding("retention", "3600", "at least 86400", "SET a;\nSET b;", Severity.WARNING, "TR-2108")
_WRONG = Finding(
    "binlog_format", "MIXED", "ROW", "SET PERSIST binlog_format = ROW;", Severity.ERROR, "TR-2102"
)
_NO_REMEDY = Finding("server", "MySQL 5.7", "MySQL 8.0", "", Severity.ERROR, "TR-2002")


def test_findings_are_rendered_with_their_remedies() -> None:
    assert render([_FINE, _RISKY, _NO_REMEDY]).splitlines() == [
        "ok    log_bin: ON",
        "warn  retention: found 3600, needed at least 86400 [TR-2108]",
        "        SET a;",
        "        SET b;",
        "FAIL  server: found MySQL 5.7, needed MySQL 8.0 [TR-2002]",
    ]


def test_warnings_do_not_refuse_capture() -> None:
    require([_FINE, _RISKY], "server `x`")


def test_refusal_names_every_error_and_every_remedy() -> None:
    with pytest.raises(PreflightError) as caught:
        require([_FINE, _WRONG, _RISKY, _NO_REMEDY], "server `x`")
    assert str(pickle.loads(pickle.dumps(caught.value))).splitlines() == [
        "server `x` cannot be captured: 2 preconditions are not met [TR-2001]",
        (
            "Detail: binlog_format: found MIXED, needed ROW [TR-2102]; "
            "server: found MySQL 5.7, needed MySQL 8.0 [TR-2002]"
        ),
        "Hint: to fix it:",
        "  SET PERSIST binlog_format = ROW;",
    ]


def test_refusal_without_a_remedy_has_no_hint() -> None:
    with pytest.raises(PreflightError, match="one precondition is not met") as caught:
        require([_NO_REMEDY], "server `x`")
    assert caught.value.hint is None
