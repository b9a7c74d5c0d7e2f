"""What an error shows and keeps."""

from __future__ import annotations

import copy
import pickle

import pytest

from tailrace.errors import SinkError, TailraceError, TransientSourceError, from_json
from tailrace.model.parked import Reason


def test_code_stands_at_the_end_of_the_message() -> None:
    error = SinkError("table `a.b` has no key", "mode upsert needs one", "add one", code="TR-5001")
    assert str(error) == "table `a.b` has no key [TR-5001]\nDetail: mode upsert needs one\nHint: add one"
    assert str(SinkError("x")) == "x"


def test_code_survives_pickling_and_copying() -> None:
    error = TransientSourceError("x", None, "z", code="TR-3001")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), from_json(error.to_json())):
        assert type(other) is TransientSourceError
        assert (other.args, other.code, str(other)) == (error.args, "TR-3001", str(error))


def test_error_that_a_version_before_codes_wrote_is_read() -> None:
    found = from_json('["SinkError", "x", null, "z"] and more')
    assert (type(found), found.args, found.code) == (SinkError, ("x", None, "z"), None)


@pytest.mark.parametrize("text", ['["ValueError", "x", null, null]', '["SinkError", "x"]', "[", "{}"])
def test_text_that_holds_no_error_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        from_json(text)


def test_name_of_a_class_of_another_module_is_no_error() -> None:
    with pytest.raises(ValueError, match="no class of errors: json"):
        from_json('["json", "x", null, null]')
    assert issubclass(SinkError, TailraceError)


def test_values_of_an_error_are_those_of_the_reason_that_is_made_of_it() -> None:
    error = SinkError("x", None, "z", code="TR-3001")
    assert error.json_values() == {"code": "TR-3001", "message": "x", "detail": None, "hint": "z"}
    assert Reason.of(error).json_values() == error.json_values()
