"""Directories of processes that may all write for one stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.sinks.tables.scratch import Scratch


def opened(root: Path | str, lease: int) -> Scratch:
    scratch = Scratch(str(root))
    scratch.begin(lease)
    return scratch


def put(directory: str) -> Path:
    path = Path(directory, "part-0.parquet")
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_owner_removes_what_older_ones_left_and_nothing_of_a_newer_one(tmp_path: Path) -> None:
    root = tmp_path / "staging"
    former, present = opened(root, 1), opened(root, 2)
    with former.directory("staged") as old, present.directory("staged") as new:
        left, mine = put(old), put(new)
        late = opened(root, 1)  # it has the lease 1 too, and begins late
        assert not left.exists()
        assert mine.exists()
        with late.directory("staged") as third:
            put(third)
        opened(root, 3)
        assert not mine.exists()


def test_owner_that_ends_removes_its_own_alone(tmp_path: Path) -> None:
    root = tmp_path / "staging"
    present = opened(root, 2)
    with present.directory("staged") as directory:
        path = put(directory)
        former = opened(root, 1)
        with former.directory("staged") as old:
            put(old)
        former.close()
        assert path.exists()
    assert not path.exists()
    present.close()
    assert not root.exists()


def test_process_without_a_lease_removes_everything(tmp_path: Path) -> None:
    root = tmp_path / "staging"
    paths = [root / "part-of-an-earlier-version.parquet", root / "7-abc" / "staged" / "part-0.parquet"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    scratch = opened(root, 0)
    (own,) = root.iterdir()
    assert not list(own.iterdir())
    with scratch.directory("merging/shop.t/keys") as directory:
        path = put(directory)
        scratch.begin(0)
        assert path.exists(), "it begins once"


@pytest.mark.parametrize("name", ["lake/_tailrace/staging/q", "db.tailrace"])
def test_directories_are_private_and_go_with_the_last_one(tmp_path: Path, name: str) -> None:
    scratch = Scratch(str(tmp_path / "data" / name))
    scratch.begin(1)
    with scratch.directory("a") as directory:
        Path(directory).mkdir()
        own = [Path(directory).parent, tmp_path / "data" / name, *(tmp_path / "data").glob("lake/_tailrace")]
        assert {path.stat().st_mode & 0o777 for path in own} == {0o700}
        assert (tmp_path / "data").stat().st_mode & 0o777 == tmp_path.stat().st_mode & 0o777 | 0o755
    scratch.close()
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] in (["data"], ["data", "data/lake"])


def test_place_in_an_object_store_does_not_become_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        opened("s3://lake/tables/_tailrace/staging", 1)
    assert not list(tmp_path.iterdir())
