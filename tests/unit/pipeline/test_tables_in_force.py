"""Which tables a pipeline captures: its file's, or those of a signal in its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import StateError
from tailrace.model.table_setting import TableSetting
from tailrace.pipeline.tables_in_force import with_tables_if_known, with_tables_in_force


def pipeline(checkpoint: Path | str, tables: str = "s[.]a") -> Pipeline:
    return parse_pipeline(
        f"source: {{url: 'mysql://x', user: u, tables: '{tables}'}}\n"
        f"sink: {{type: delta, path: /lake}}\npipeline: {{checkpoint: '{checkpoint}'}}\n"
    )


def planned(checkpoint: Path, end: object) -> None:
    """The checkpoint has a batch with this end."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}\n")


def test_tables_of_a_signal_count_until_the_file_changes(tmp_path: Path) -> None:
    assert with_tables_in_force(pipeline(tmp_path)).source.tables == ("s[.]a",)
    setting = TableSetting(("s[.]b",), ("s[.]a",))
    planned(tmp_path, StreamOffset("initial", {"pos": 1}, setting=setting).to_json())
    assert with_tables_in_force(pipeline(tmp_path)).source.tables == ("s[.]b",)
    assert with_tables_in_force(pipeline(tmp_path, "s[.]c")).source.tables == ("s[.]c",)


def test_check_goes_by_the_file_while_the_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    planned(tmp_path, {"v": 99})
    with pytest.raises(StateError):
        with_tables_in_force(pipeline(tmp_path))
    assert with_tables_if_known(pipeline(tmp_path)).source.tables == ("s[.]a",)
    assert with_tables_if_known(pipeline("nowhere://x/y")).source.tables == ("s[.]a",)
