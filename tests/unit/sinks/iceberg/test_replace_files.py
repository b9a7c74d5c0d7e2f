"""The private class of pyiceberg that we subclass exists; one file imports it; its version is bounded."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update import snapshot

from tailrace.sinks.iceberg import file_rows, replace_files

ROOT = Path(__file__).parents[4]


def test_private_class_takes_what_replace_files_gives() -> None:
    base = snapshot._OverwriteFiles
    assert {"operation", "transaction", "io", "branch", "snapshot_properties"} <= set(
        inspect.signature(base).parameters
    )
    assert list(inspect.signature(base._summary).parameters) == ["self", "snapshot_properties"]
    assert callable(base.append_data_file)
    assert callable(base.delete_data_file)
    assert "additional_properties" in dir(Summary)


def test_private_members_of_pyiceberg_are_imported_where_tests_check_them() -> None:
    imports = re.compile(r"^from pyiceberg\S* import .*\b_\w", re.MULTILINE)
    sources = (ROOT / "src").rglob("*.py")
    found = {path for path in sources if imports.search(path.read_text(encoding="utf-8"))}
    assert found == {Path(replace_files.__file__), Path(file_rows.__file__)}


def test_version_of_pyiceberg_has_an_upper_bound() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(re.match(r"pyiceberg\S*,<\d", requirement) for requirement in extras["iceberg"])
