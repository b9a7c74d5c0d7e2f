"""Private members of pyiceberg that read a file's rows."""

from __future__ import annotations

import inspect

from pyiceberg.io import pyarrow


def test_private_members_take_what_file_rows_gives() -> None:
    assert list(inspect.signature(pyarrow._read_all_delete_files).parameters) == ["io", "tasks"]
    method = pyarrow.ArrowScan._record_batches_from_scan_tasks_and_deletes
    assert list(inspect.signature(method).parameters) == ["self", "tasks", "deletes_per_file"]
