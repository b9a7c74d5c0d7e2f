"""Spark's checkpoint directory, read and edited without Spark.

    metadata    {"id": "<uuid>"}            the stream's id, for the life of the checkpoint
    offsets/N   v1, then a line of JSON about the batch, then the source's offset at its end
    commits/N   exists once batch N is in the sink

Files are reached through Arrow's file systems: a local path, or a URI of S3, GCS or HDFS.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import fs

from tailrace.errors import StateError
from tailrace.private import make_private_directory, write_private
from tailrace.spark.object_stores import file_system

#: What Spark writes into `commits/N` for a stream without a watermark.
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def is_local(path: str) -> bool:
    """Whether `path` is on a file system of this machine, or a mounted one."""
    return "://" not in path or path.startswith("file://")


def absolute(path: str) -> str:
    """The absolute form of a local path, without `file:`; a URI unchanged."""
    return str(Path(path.removeprefix("file://")).absolute()) if is_local(path) else path.rstrip("/")


class Directory:
    """A directory on some file system.

    Args:
        path: a path, or a URI of an object store (`spark.object_stores`).
        private: whether local files written to it are for this user only.
    """

    def __init__(self, path: str, *, private: bool = False) -> None:
        self._private = private and is_local(path)
        if is_local(path):
            self._files, self._path = fs.LocalFileSystem(), absolute(path)
        else:
            self._files, self._path = file_system(path)

    def names(self) -> list[str]:
        """Names of its entries; none if it does not exist."""
        infos = self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return sorted(info.base_name for info in infos)

    def is_empty_directory(self, name: str) -> bool:
        """Whether an entry is a directory without entries."""
        path = f"{self._path}/{name}"
        if self._files.get_file_info(path).type is not fs.FileType.Directory:
            return False
        return not self._files.get_file_info(fs.FileSelector(path))

    def read(self, name: str) -> str | None:
        """The text of a file, None if it does not exist."""
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as file:
                return bytes(file.read()).decode()
        except FileNotFoundError:
            return None

    def modified_ms(self, name: str) -> int | None:
        """When a file was written last, milliseconds since 1970 UTC; None if that is not known."""
        at_ns = self._files.get_file_info(f"{self._path}/{name}").mtime_ns
        return None if at_ns is None else int(at_ns) // 1_000_000

    def write(self, name: str, text: str) -> None:
        """Write a file; create missing directories of its path."""
        path = f"{self._path}/{name}"
        if self._private:
            make_private_directory(Path(path).parent)
            write_private(Path(path), text)
            return
        self._files.create_dir(path.rpartition("/")[0])
        with self._files.open_output_stream(path) as file:
            file.write(text.encode())

    def rename(self, name: str, new: str) -> None:
        """Rename a file."""
        self._files.move(f"{self._path}/{name}", f"{self._path}/{new}")

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        path = f"{self._path}/{name}"
        if self._files.get_file_info(path).type is fs.FileType.File:
            self._files.delete_file(path)

    def remove_directory(self, name: str) -> None:
        """Remove a directory with all its entries if it exists."""
        path = f"{self._path}/{name}"
        if self._files.get_file_info(path).type is fs.FileType.Directory:
            self._files.delete_dir(path)


@dataclass(frozen=True)
class PlannedBatch:
    """A batch of a checkpoint.

    Args:
        id: its number.
        end: the stream offset at its end.
        committed: whether the sink has it.
        planned_ms: when it was planned, milliseconds since 1970 UTC by the driver's clock.
    """

    id: int
    end: dict[str, Any]
    committed: bool
    planned_ms: int = 0


class Checkpoint:
    """A stream's checkpoint.

    Args:
        path: Spark's `checkpointLocation`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._root = Directory(path, private=True)

    def query_id(self) -> str | None:
        """The stream's id, None before the first start."""
        text = self._root.read("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def end_of(self, batch: int) -> dict[str, Any] | None:
        """The offset at the end of a batch, None if it was never planned."""
        text = self._root.read(f"offsets/{batch}")
        return None if text is None else _end(text, self.path)

    def sources_of(self, batch: int) -> int:
        """How many sources have an offset at the end of a batch."""
        text = self._root.read(f"offsets/{batch}")
        return 0 if text is None else len(text.splitlines()) - 2

    def is_done(self, batch: int) -> bool:
        """Whether Spark has recorded the batch as done."""
        return batch in self._numbers("commits")

    def committed_ms(self, batch: int) -> int | None:
        """When Spark recorded a batch as done, milliseconds since 1970 UTC; None: it has not, or unknown."""
        return self._root.modified_ms(f"commits/{batch}")

    def batches(self) -> list[PlannedBatch]:
        """The batches that the checkpoint still holds, in order: Spark keeps the last hundred."""
        done = set(self._numbers("commits"))
        found = []
        for number in self._numbers("offsets"):
            text = self._root.read(f"offsets/{number}")
            if text is not None:  # else Spark has just removed it
                found.append(self._batch(number, text, number in done))
        return found

    def replaced(self) -> list[PlannedBatch]:
        """The batches whose ends `set_end` has replaced, as they were, the oldest first."""
        found = []
        for name in sorted(Directory(f"{self.path}/offsets.before").names(), key=_of_replaced):
            text = self._root.read(f"offsets.before/{name}")
            if text is not None:
                found.append(self._batch(_of_replaced(name)[0], text, True))
        return found

    def _found(self, number: int, committed: bool) -> PlannedBatch | None:
        text = self._root.read(f"offsets/{number}")
        return None if text is None else self._batch(number, text, committed)

    def _batch(self, number: int, text: str, committed: bool) -> PlannedBatch:
        end = _end(text, self.path)
        planned_ms = int(json.loads(text.splitlines()[1]).get("batchTimestampMs", 0))
        return PlannedBatch(number, end, committed, planned_ms)

    def last(self) -> PlannedBatch | None:
        """The newest planned batch, None if there is none."""
        batches = self._numbers("offsets")
        if not batches:
            return None
        return self._found(batches[-1], self.is_done(batches[-1]))

    def last_committed(self) -> PlannedBatch | None:
        """The newest batch that the sink has, None if there is none."""
        last = self.last()
        if last is None or last.committed:
            return last
        return self._found(last.id - 1, True) if last.id else None

    def set_end(self, end: dict[str, Any], number: int | None = None) -> str:
        """Let the stream continue from `end`: the newest batch then ends there.

        The old file is kept next to the checkpoint's offsets, in `offsets.before`.

        Args:
            end: a stream offset.
            number: the newest batch from now on, if it is above the present one; what is between counts as
                written.

        Returns:
            The name of the kept file.

        Raises:
            StateError: there is no batch, or the newest one is not in the sink yet: it would be written
                with an end that differs from its plan. Not so if another one is the newest from now on.
        """
        last = self.last()
        if last is None:
            raise StateError(
                f"checkpoint `{self.path}` holds no offset", None, "run the pipeline once", code="TR-6004"
            )
        newest = last.id if number is None else max(number, last.id)
        if not last.committed and newest == last.id:
            raise StateError(
                f"batch {last.id} of checkpoint `{self.path}` is planned but not committed",
                "its end must not change before the sink has it",
                "start the pipeline, stop it, and try again",
                code="TR-6005",
            )
        text = self._root.read(f"offsets/{last.id}")
        assert text is not None
        lines = text.splitlines()
        kept = 0
        while self._root.read(f"offsets.before/{last.id}.{kept}") is not None:
            kept += 1
        self._root.write(f"offsets.before/{last.id}.{kept}", text)
        changed = "\n".join([*lines[:2], json.dumps(end, separators=(",", ":")), *lines[3:]])
        # Spark also reads the batch before the newest. Until the newest is there, targets are ahead of what
        # is, and the stream does not start (`pipeline.older_checkpoint`).
        for batch in range(max(newest - 1, last.id + 1), newest + 1):
            self._root.write(f"commits/{batch}", _COMMIT)
        if newest - 1 > last.id:
            self._root.write(f"offsets/{newest - 1}", text)
        self._root.remove(f"offsets/.{newest}.crc")
        self._root.write(f"offsets/{newest}", changed)
        return f"offsets.before/{last.id}.{kept}"

    def _numbers(self, name: str) -> list[int]:
        return sorted(int(n) for n in Directory(f"{self.path}/{name}").names() if n.isdigit())


def _of_replaced(name: str) -> tuple[int, int]:
    """The number of a batch, and which of its replaced ends the file `name` holds."""
    number, _, count = name.partition(".")
    return int(number), int(count)


def _end(text: str, path: str) -> dict[str, Any]:
    lines = text.splitlines()
    if not lines or lines[0] != "v1" or len(lines) < 3:
        raise StateError(
            f"checkpoint `{path}` is not of a Tailrace stream", "its offset log differs", code="TR-6003"
        )
    end: dict[str, Any] = json.loads(lines[2])
    return end
