"""Broken bytes must end in one of our errors or in valid values: no crash, no hang, no other exception.

The same as `make fuzz`, for seconds instead of an hour: each subject in a process of its own, see tests.fuzz.
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import subjects

#: For each subject; all of them take less than 30 s.
_SECONDS = "1"


@pytest.mark.parametrize("subject", list(subjects.SUBJECTS))
def test_broken_bytes_end_in_an_error_of_ours_or_in_valid_values(
    subject: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--subject", subject, "--seconds", _SECONDS]
    assert fuzz.main(arguments) == 0, capfd.readouterr().out
    assert "cases" in capfd.readouterr().out


def _segfault(_: object) -> None:
    os.abort()


def _endless(_: object) -> None:
    while True:
        pass


def _greedy(_: object) -> None:
    bytearray(fuzz.MEMORY_BYTES * 2)


def _defect(_: object) -> None:
    raise ValueError("not one of ours")


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (_segfault, "killed by SIGABRT"),
        (_endless, "no end within"),
        (_greedy, "MemoryError"),
        (_defect, "ValueError: not one of ours"),
    ],
)
def test_finding_is_reported_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], case: object, told: str
) -> None:
    assert callable(case)
    monkeypatch.setattr(fuzz, "HANG_S", 2)
    name = f"tests.fuzz.test_fuzz:{case.__name__}"
    assert fuzz.main(["--subject", name, "--seconds", "1", "--seed", "7"]) == 1
    out = capfd.readouterr().out
    assert told in out
    assert f"again: python -m tests.fuzz --subject {name} --seed 7 --cases 1" in out
