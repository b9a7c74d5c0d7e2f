"""Change logs as plain files: Parquet, or JSON lines.

    path/<target>/tailrace_batch=<number>/part-*           <target>: its name by `model.paths`

The rows are those of Delta's `mode: changelog`. `spark.read.parquet(path/<target>)` reads a target, with the
batch's number as a column (use option `mergeSchema` if the table's columns have changed).

A batch that comes again is left out where it is whole: Spark writes `_SUCCESS` last. On a file system, its
directory is written elsewhere and gets its name when it is whole, so that whoever writes it at the same time,
and whoever is killed, leaves it as it is. Object stores rename nothing at once: there a directory that is not
whole is replaced.

Spark writes the files, for each target in a job of its own. If the batch holds what is expected
(`sinks.single_pass`), these jobs read no cells: one pass over the cells has staged the rows of all targets.

The file `path/<target>/_tailrace.json` names the stream that a target belongs to. Targets of other streams
are not touched. An empty file `_tailrace.lease-<number>` notes the newest lease under which it was written
(`sinks.lease`).
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.config.sinks import FileSettings, JsonSettings, ParquetSettings
from tailrace.errors import StateError
from tailrace.failpoints import failpoint
from tailrace.model.table import TableId
from tailrace.sinks.base import (
    Capabilities,
    CellBatch,
    Delivery,
    Order,
    StreamId,
    Unit,
    Written,
)
from tailrace.sinks.claims import Claims
from tailrace.sinks.lease import require_newest
from tailrace.sinks.paths import below, path_in_use, same_path_error, target_path
from tailrace.sinks.route import Router
from tailrace.sinks.single_pass import Schemas, SinglePass
from tailrace.sinks.tables.columns import merged_schema, require_free
from tailrace.sinks.tables.parquet import rolling
from tailrace.sinks.tables.rows import log_fields, log_rows
from tailrace.sinks.tables.scratch import Scratch
from tailrace.sinks.tables.staging import Recipe, StagedBatch, stage
from tailrace.sinks.tables.targets import TargetPool
from tailrace.spark.cells import TableBatch, spark_schema, unpacked
from tailrace.spark.checkpoint import Directory, absolute, is_local

_OWNER = "_tailrace.json"
_LEASE = "_tailrace.lease-"
#: The file that Spark writes last.
_WHOLE = "_SUCCESS"
#: The column that readers derive from the name of a batch's directory.
_BATCH = "tailrace_batch"
#: Characters with a meaning in the paths that Spark reads.
_GLOB = re.compile(r"[{}\[\]*?\\]")
#: By default Spark's JSON has milliseconds only. Parquet ignores these options.
_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class FileSink:
    """Writes each table's changes to files below `path/<target>`.

    Args:
        settings: the path; their type is the format.
        router: names the targets.
    """

    def __init__(self, settings: ParquetSettings | JsonSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._claims = Claims(router, lambda table: [target_path(router, table)])
        self._pool = TargetPool(self._claims, settings.parallelism)
        self._single_pass = SinglePass()
        self._scratch: Scratch | None = None
        #: The directories of opened targets.
        self._opened: dict[str, str] = {}

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE, Order.BY_SEQ, Unit.TARGET, holds_rows=False, follows_schema=True
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        if self._scratch is None and is_local(self._settings.path):
            self._scratch = Scratch(f"{absolute(self._settings.path)}/_tailrace/staging/{batch.stream.query}")
            self._scratch.begin(batch.stream.lease)
        return self._single_pass.write(
            batch,
            one_pass=partial(self._one_pass, batch),
            commit=partial(self._commit, batch),
            write_found=lambda: self._commit(batch, StagedBatch.of(batch)),
        )

    def close(self) -> None:
        """See `Sink.close`."""
        self._pool.close()
        if self._scratch is not None:
            self._scratch.close()

    @contextmanager
    def _one_pass(self, batch: CellBatch, schemas: Schemas) -> Iterator[StagedBatch[_StagedFiles] | None]:
        """Stage the rows of a batch that is expected to hold `schemas`; None where tasks cannot."""
        if self._scratch is None:
            yield None
            return
        columns = {key: merged_schema(self._router.target(s.id), [s]) for key, s in schemas.items()}
        with self._scratch.directory("staged") as directory:
            recipes = {
                key: Recipe(
                    schema, log_rows(columns[key]), partial(rolling, log_fields(columns[key]), directory)
                )
                for key, schema in schemas.items()
            }
            yield stage(
                batch.columns_once("cell"),
                recipes,
                lambda key, files: _StagedFiles([f"{directory}/{file.name}" for file in files], columns[key]),
            )

    def _commit(self, batch: CellBatch, held: StagedBatch[_StagedFiles]) -> list[Written]:
        """Write a batch to its targets."""
        return self._pool.write(
            held.table_batches, lambda target, parts: self._write(batch, target, parts, held.files)
        )

    def _write(
        self,
        batch: CellBatch,
        target: str,
        parts: list[TableBatch],
        staged: Mapping[tuple[str, str], _StagedFiles],
    ) -> None:
        path = self._opened.get(target)
        names = [] if path is None else Directory(path).names()
        if path is None or not names:
            path = self._opened[target] = self._open(batch, target, parts[0].table)
            names = Directory(path).names()
        _claim(target, path, names, batch.stream.lease)
        directory = f"{path}/{_BATCH}={batch.id}"
        if _is_whole(directory):
            return
        schemas = [schema for part in parts for schema in part.schemas]
        columns = merged_schema(target, schemas)
        for schema in schemas:
            require_free(schema, [*log_fields(pa.schema([])).names, _BATCH], f"a {self._settings.type} sink")
        rows = _rows(batch, parts, columns, staged)
        writer = rows.write.format(self._settings.type).mode("overwrite").options(**_OPTIONS)
        if self._scratch is None:
            writer.save(directory)
        else:
            with self._scratch.directory(uuid.uuid4().hex) as made:
                writer.save(made)
                _put(made, directory)
        failpoint("sink.table")

    def _open(self, batch: CellBatch, target: str, table: TableId) -> str:
        """The directory of a target; it belongs to this stream from now on."""
        root, stream = self._settings.path, batch.stream
        path = path_in_use(target_path(self._router, table), target, partial(_is_of, root, stream))
        directory = below(root, path)
        if not Directory(directory).names():
            batch.creates(target, self._claims.of(target))
        _own(target, directory, stream)
        return directory


@dataclass(frozen=True)
class _StagedFiles:
    """Rows for Spark to read.

    Args:
        paths: Parquet files.
        columns: the source's columns that they were written for.
    """

    paths: list[str]
    columns: pa.Schema


def _rows(
    batch: CellBatch,
    parts: list[TableBatch],
    columns: pa.Schema,
    staged: Mapping[tuple[str, str], _StagedFiles],
) -> DataFrame:
    """A target's rows, from staged files if they have its columns, else from cells."""
    files = [staged.get((str(part.table), part.kind)) for part in parts]
    fitting = [file for file in files if file is not None and file.columns == columns]
    paths = [_GLOB.sub(r"\\\g<0>", path) for file in fitting for path in file.paths]
    if paths and len(fitting) == len(parts):
        return batch.spark.read.schema(spark_schema(log_fields(columns))).parquet(*paths)
    tables = sorted({str(part.table) for part in parts})
    cells = batch.frame.where(f.col("table").isin(tables)).select("cell")
    return unpacked(cells, log_rows(columns), log_fields(columns))


def _claim(target: str, path: str, names: Iterable[str], lease: int) -> None:
    """Note under which lease a target is written.

    Raises:
        LeaseLostError: it was written under a newer one.
    """
    former = [name for name in names if name.startswith(_LEASE)]
    noted = max((int(name.removeprefix(_LEASE)) for name in former), default=0)
    require_newest(target, noted, lease)
    if lease > noted:
        directory = Directory(path)
        directory.write(f"{_LEASE}{lease}", "")
        for name in former:
            directory.remove(name)


def _is_whole(directory: str) -> bool:
    return _WHOLE in Directory(directory).names()


def _put(made: str, directory: str) -> None:
    """Give a whole directory its name, unless another owner was first."""
    target = Path(absolute(directory))
    try:
        Path(made).rename(target)
    except OSError:
        if _is_whole(directory):
            return
        shutil.rmtree(target)  # an earlier version was killed while it wrote there
        Path(made).rename(target)


def _is_of(root: str, stream: StreamId, path: str) -> bool:
    """Whether a target of `stream` is at `path`."""
    owner = Directory(root).read(f"{path}/{_OWNER}")
    return owner is not None and json.loads(owner)["stream"] == stream.query


def _own(target: str, path: str, stream: StreamId) -> None:
    """Make the directory of a target this stream's.

    Raises:
        StateError: it belongs to another stream, or to another target.
    """
    directory = Directory(path)
    text = directory.read(_OWNER)
    if text is None:
        if directory.names():
            raise StateError(
                f"target `{target}` at `{path}` is not this stream's",
                "the directory holds files that Tailrace did not write",
                "use another sink path",
                code="TR-6101",
            )
        new = {"v": 1, "stream": stream.query, "pipeline": stream.pipeline, "target": target}
        directory.write(_OWNER, json.dumps(new))
        return
    owner = json.loads(text)
    if owner["stream"] != stream.query:
        raise StateError(
            f"target `{target}` at `{path}` is not this stream's",
            f"it belongs to stream {owner['stream']}, this one is {stream.query}",
            "use another sink path, or continue with that stream's checkpoint",
            code="TR-6101",
        )
    if owner.get("target", target) != target:
        raise same_path_error(target, owner["target"], path)


def newest_batches(
    settings: FileSettings, router: Router, tables: Iterable[TableId], stream: StreamId
) -> Iterator[tuple[str, int]]:
    """The newest batch of each target that the stream has, by the target's name."""
    for name, path in {router.target(table): target_path(router, table) for table in tables}.items():
        if not _is_of(settings.path, stream, path):
            continue
        found = Directory(below(settings.path, path)).names()
        batches = [int(entry.partition("=")[2]) for entry in found if entry.startswith(f"{_BATCH}=")]
        if batches:
            yield name, max(batches)
