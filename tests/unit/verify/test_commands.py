"""Options of `tailrace verify` that are refused before anything is opened."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tailrace.verify.commands import verify


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--key-range", "5"], "a range of whole numbers: 1000..2000"),
        (["--key-range", "5..1"], "a range whose first number is not greater"),
        (["--sample", "5"], "a share of the rows: 1%"),
        (["--sample", "5%", "--key-range", "1.."], "give --key-range or --sample"),
        (["--resume", "--sample", "1%"], "give --resume without"),
    ],
)
def test_parts_of_another_form_are_refused(options: list[str], why: str) -> None:
    done = CliRunner().invoke(verify, ["none.yaml", *options])
    assert done.exit_code == 2
    assert why in done.output
