"""Where an archive is kept: a local directory, or a directory of an object store, by Arrow's file systems.

Files are written whole and never changed; only manifests and sightings are replaced. A local file appears
under its name only when it is complete and on the disk; an object store does the same by itself. Local files
are for this user only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
from pyarrow import fs

from tailrace.errors import SourceError, StateError, TransientSourceError
from tailrace.printable import printable
from tailrace.private import FILE_MODE, make_private_directory

_LOCK = "lock"


def is_local(url: str) -> bool:
    """Whether an archive's address is a path of this machine."""
    return "://" not in url or url.startswith("file://")


class Store:
    """The files of one archive.

    Args:
        url: a path, or a URI of S3 (`s3://`, `s3a://`), GCS, Azure or HDFS.

    Raises:
        SourceError: the address is of no known kind.
    """

    def __init__(self, url: str) -> None:
        self.is_local = is_local(url)
        if self.is_local:
            self._files = fs.LocalFileSystem()
            self._path = str(Path(url.removeprefix("file://")).absolute())
            return
        uri = "s3" + url.removeprefix("s3a") if url.startswith("s3a://") else url
        try:
            self._files, path = _from_uri(uri)
        except (pa.ArrowException, ValueError):
            raise SourceError(
                "the address of the archive is not understood",
                "allowed: a path, or a URI of s3, gs, abfs or hdfs",
                code="TR-8201",
            ) from None
        self._path = path.rstrip("/")

    def names(self, directory: str) -> list[str]:
        """The names in a directory of the archive, sorted; none if it does not exist."""
        with self._failing("listing", directory):
            infos = self._files.get_file_info(
                fs.FileSelector(f"{self._path}/{directory}", allow_not_found=True)
            )
        return sorted(info.base_name for info in infos if info.type is fs.FileType.File)

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """A whole file; None if it does not exist.

        Raises:
            StateError: it is larger than any such file is.
            TransientSourceError: it cannot be read.
        """
        try:
            with self._failing("reading", name), self._files.open_input_file(f"{self._path}/{name}") as file:
                size = int(file.size())
                if size > most_bytes:
                    raise StateError(
                        f"`{name}` of the archive is larger than it can be",
                        f"it has {size} bytes, expected: at most {most_bytes}",
                        code="TR-8204",
                    )
                return bytes(file.read())
        except FileNotFoundError:
            return None

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        """A file to read and seek in. Raises FileNotFoundError, TransientSourceError."""
        with self._failing("reading", name), self._files.open_input_file(f"{self._path}/{name}") as file:
            yield cast("BinaryIO", file)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A new file, which exists once the context ends without an error."""
        path = f"{self._path}/{name}"
        with self._failing("writing", name):
            if not self.is_local:
                self._files.create_dir(path.rpartition("/")[0])
                with self._files.open_output_stream(path) as stream:
                    yield cast("BinaryIO", stream)
                return
            target = Path(path)
            make_private_directory(target.parent)
            new = target.with_name(f"{target.name}.new")
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            new.replace(target)
            directory = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file."""
        with self.writing(name) as file:
            file.write(data)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with self._failing("removing", name), suppress(FileNotFoundError):
            self._files.delete_file(f"{self._path}/{name}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers on this machine away; object stores have no locks.

        Raises:
            StateError: another process writes to the archive.
        """
        if not self.is_local:
            yield
            return
        with self._failing("locking", _LOCK):
            directory = make_private_directory(Path(self._path))
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise another_writer() from None
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _failing(self, doing: str, name: str) -> Iterator[None]:
        """The errors of file systems as ours; not that a file does not exist."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise TransientSourceError(
                f"{doing} `{printable(name)}` of the archive failed",
                str(reason),
                "is the archive's address right, and may this user read and write there?",
                code="TR-8202",
            ) from error


def _from_uri(uri: str) -> tuple[fs.FileSystem, str]:
    """An object store and the path in it."""
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
    return found


def another_writer() -> StateError:
    """The error for a second writer."""
    return StateError(
        "another process writes to the archive",
        None,
        "stop it: an archive has one writer, whatever number of pipelines reads it",
        code="TR-8203",
    )
