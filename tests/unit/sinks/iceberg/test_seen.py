"""The rows of a data file that stay when a reading of their table ends."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tailrace.model.soft_delete import SoftDelete
from tailrace.sinks.iceberg.files import FileTarget
from tailrace.sinks.iceberg.rewrite import kept_rows
from tailrace.sinks.iceberg.seen import Unseen

IO = PyArrowFileIO()
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("shard", pa.string())])


def file(path: Path, **columns: list[object]) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.fixture
def target(tmp_path: Path) -> FileTarget:
    return FileTarget(IO, str(tmp_path), COLUMNS)


def kept(target: FileTarget, path: str, unseen: Unseen, changed: pa.Table | None = None) -> list[int] | None:
    rows, _ = kept_rows(target, path, changed, [unseen])
    return None if rows is None else rows.to_pylist()


def test_rows_of_seen_keys_stay_whatever_file_their_keys_are_in(target: FileTarget, tmp_path: Path) -> None:
    data = file(tmp_path / "data", id=[1, 2, 3, 4, 90], name=list("abcde"))
    seen = [
        file(tmp_path / str(n), id=pa.array(ids, pa.int32())) for n, ids in enumerate([[4, 1], [50], [90]])
    ]
    assert kept(target, data, Unseen("s.t", None, ("id",), tuple(seen))) == [0, 3, 4]
    changed = pa.table({"id": [4]}, schema=pa.schema([("id", pa.int64())]))
    assert kept(target, data, Unseen("s.t", None, ("id",), tuple(seen)), changed) == [0, 4]
    assert kept(target, file(tmp_path / "all", id=[1, 4]), Unseen("s.t", None, ("id",), tuple(seen))) is None


def test_rows_of_other_keys_are_marked_once(tmp_path: Path) -> None:
    columns = COLUMNS.append(pa.field("gone", pa.bool_()))
    target = FileTarget(IO, str(tmp_path), columns)
    data = file(tmp_path / "data", id=[1, 2, 3, 4], name=list("abcd"), gone=[False, False, True, False])
    seen = file(tmp_path / "seen", id=pa.array([1], pa.int32()))
    marks = SoftDelete({"gone": True}, {"gone": (False, False)})
    unseen = Unseen("s.t", None, ("id",), (seen,), marks=marks)
    changed = pa.table({"id": [4]}, schema=pa.schema([("id", pa.int64())]))
    kept, marked = kept_rows(target, data, changed, [unseen])
    assert kept is not None
    assert kept.to_pylist() == [0, 2]
    assert [(of, rows.to_pylist()) for of, rows in marked] == [(unseen, [1])]
    assert unseen.marked(pa.table({"id": [2], "gone": [False]})).to_pylist() == [{"id": 2, "gone": True}]


def test_rows_stay_where_nothing_marks_them(tmp_path: Path, target: FileTarget) -> None:
    data = file(tmp_path / "data", id=[1, 2], name=list("ab"))
    assert kept(target, data, Unseen("s.t", None, ("id",), (), marks=SoftDelete())) is None


def test_no_row_stays_when_no_key_was_seen(target: FileTarget, tmp_path: Path) -> None:
    data = file(tmp_path / "data", name=["a", "b"])
    assert kept(target, data, Unseen("s.t", None, (), ())) == []


def test_rows_of_other_shards_and_of_none_stay(target: FileTarget, tmp_path: Path) -> None:
    data = file(tmp_path / "data", id=[1, 2, 2, 3], shard=["s.t", "s.t", "s.u", None])
    seen = file(tmp_path / "seen", id=[1], shard=["s.t"])
    assert kept(target, data, Unseen("s.t", "shard", ("id", "shard"), (seen,))) == [0, 2, 3]
    assert kept(target, data, Unseen("s.u", "shard", (), ())) == [0, 1, 3]


def test_rows_of_files_that_lack_the_key_go(target: FileTarget, tmp_path: Path) -> None:
    data = file(tmp_path / "data", name=["a", None])
    seen = file(tmp_path / "seen", id=[7])
    assert kept(target, data, Unseen("s.t", None, ("id",), (seen,))) == []
    words = file(tmp_path / "words", name=["a"])
    assert kept(target, data, Unseen("s.t", None, ("name",), (words,))) == [0]


def test_lost_file_of_keys_is_an_error(target: FileTarget, tmp_path: Path) -> None:
    data = file(tmp_path / "data", id=[1])
    with pytest.raises(FileNotFoundError):
        kept(target, data, Unseen("s.t", None, ("id",), (str(tmp_path / "lost"),)))
