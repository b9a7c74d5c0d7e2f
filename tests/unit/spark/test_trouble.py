"""What the processes of a stream try again, as the one that runs it finds it."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import TailraceError, TransientSourceError
from tailrace.sources.network import retried
from tailrace.spark.trouble import Troubles, note_trouble, trouble_path

OPTIONS = parse_options(
    {"url": "mysql://127.0.0.1:1/shop", "user": "u", "password": "p", "tables": "shop[.]t"},
)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def troubles(tmp_path: Path, clock: Clock) -> Troubles:
    note_trouble()
    return Troubles(str(tmp_path), clock)


def note(options: SourceOptions, operation: str, text: str | None) -> None:
    retried(options, operation, None if text is None else TransientSourceError(text, code="TR-3003"))


def message(error: TailraceError | None) -> str | None:
    return None if error is None else error.message


def test_trouble_is_found_until_it_is_over(tmp_path: Path, troubles: Troubles) -> None:
    options = replace(OPTIONS, trouble_path=trouble_path(str(tmp_path)))
    assert troubles.current() is None
    note(options, "a", "no connection")
    found = troubles.current()
    assert isinstance(found, TransientSourceError)
    assert (found.message, found.code) == ("no connection", "TR-3003")
    note(options, "b", "another")
    assert message(troubles.current()) == "no connection"
    note(options, "a", None)
    assert message(troubles.current()) == "another"
    note(options, "b", None)
    assert troubles.current() is None


def test_trouble_of_a_process_that_was_killed_ends(tmp_path: Path, troubles: Troubles, clock: Clock) -> None:
    options = replace(OPTIONS, trouble_path=trouble_path(str(tmp_path)))
    note(options, "killed", "no connection")
    assert troubles.current()
    clock.now_s = 50
    note(options, "alive", "another")
    assert message(troubles.current()) == "no connection"
    clock.now_s = 61
    assert message(troubles.current()) == "another"
    # each attempt shows that its process is there
    for _ in range(5):
        note(options, "alive", "another")
        clock.now_s += 40
        assert message(troubles.current()) == "another"
    assert len(list(Path(trouble_path(str(tmp_path))).iterdir())) == 1


def test_what_an_earlier_run_left_is_removed(tmp_path: Path, troubles: Troubles) -> None:
    note(replace(OPTIONS, trouble_path=trouble_path(str(tmp_path))), "old", "no connection")
    troubles.clear()
    assert troubles.current() is None


def test_files_are_for_this_user_only_and_streams_without_a_checkpoint_have_none(
    tmp_path: Path, troubles: Troubles
) -> None:
    note(OPTIONS, "a", "no connection")
    assert not list(tmp_path.iterdir())
    note(replace(OPTIONS, trouble_path=trouble_path(str(tmp_path))), "a", "no connection")
    (file,) = Path(trouble_path(str(tmp_path))).iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert troubles.current()


def test_directory_that_cannot_be_written_stops_nothing(
    tmp_path: Path, troubles: Troubles, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "_tailrace").touch()
    note(replace(OPTIONS, trouble_path=trouble_path(str(tmp_path))), "a", "no connection")
    assert "could not be noted" in caplog.text
