"""The rows of one data file in batches, for which pyiceberg has no public call: see also `replace_files`.

`ArrowScan.to_record_batches` holds all rows of a file (0.12). tests/unit/sinks/iceberg/test_file_rows.py
checks what is used here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import FileScanTask


def file_rows(reader: ArrowScan, io: FileIO, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """The rows of a file, without those that its position deletes name.

    Args:
        reader: of the table's version and the columns.
        io: reads the file, and those of deletes.
        task: the file.
    """
    deletes = _read_all_delete_files(io, [task])
    return reader._record_batches_from_scan_tasks_and_deletes([task], deletes)  # noqa: SLF001
