"""Functions in Python that transforms call: how their code reaches tasks, and how Spark SQL knows them.

    pipeline file      functions: {domain: cleaning:domain}
    --functions-path   a directory ─▶ an archive ─▶ the import path of the driver and of every task
    at the start       the driver and the workers import each function
    a table's batch    `domain` is a function of Spark SQL while its transform is analysed

A function is a scalar Arrow UDF of Spark. It is imported by its name where it runs, and what it returns is
checked there. Its exceptions may hold values of rows, so an error has their class and line alone.
"""

from __future__ import annotations

import importlib
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from tailrace.config.functions import PythonFunction
from tailrace.errors import ConfigError, SinkError, TailraceError
from tailrace.functions import RETURNS
from tailrace.spark.jvm import map_in_arrow, registered_function, sql_function_exists
from tailrace.spark.task_errors import parse_error

_HINT_OF_PATH = (
    "install the module where Spark's Python finds it, or name its directory: --functions-path DIRECTORY"
)
_HINT_OF_CODE = "correct the function; `tailrace check --sample` calls it with rows of each table"


@dataclass(frozen=True)
class Functions:
    """The functions of a pipeline.

    Args:
        listed: as its file names them.
    """

    listed: Sequence[PythonFunction] = ()

    def require(self, session: SparkSession) -> None:
        """Import every function, here and on the workers.

        Raises:
            ConfigError: one cannot be imported, or is none that a transform can call.
        """
        for function in self.listed:
            if sql_function_exists(session, function.name):
                raise ConfigError(
                    f"`functions.{function.name}` has the name of a function of Spark SQL",
                    None,
                    "give it another name",
                    code="TR-1521",
                )
            _spark_type(function)
        if self.listed:
            self._require_on_workers(session)

    def _require_on_workers(self, session: SparkSession) -> None:
        listed = tuple(self.listed)

        def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for function in listed:
                _loaded(function, "a worker")
            yield from batches

        tasks = session.sparkContext.defaultParallelism
        try:
            map_in_arrow(session.range(0, tasks, 1, tasks), imported, "id long").collect()
        except PySparkException as error:
            raise parse_error(str(error)) or error from None

    @contextmanager
    def known_to(self, session: SparkSession, sql: str, table: object) -> Iterator[None]:
        """SQL that is analysed in this context can call the functions that `sql` names.

        Args:
            session: the session that analyses it.
            sql: the text.
            table: the table whose rows they get.
        """
        named = [function for function in self.listed if function.is_named_in(sql)]
        calls = [(f.name, _Call(f, str(table)), _spark_type(f)) for f in named]
        with registered_function(session, calls):
            yield

    def any_named_in(self, sql: str) -> bool:
        """Whether `sql` may call one of them."""
        return any(function.is_named_in(sql) for function in self.listed)


@contextmanager
def code_for_tasks(session: SparkSession, path: Path | None) -> Iterator[None]:
    """In this context the driver and all tasks import modules from `path`, too.

    Args:
        session: the session of the tasks.
        path: a directory, an archive (.zip, .whl) or a module (.py); None: there is none.

    Raises:
        ConfigError: it is none of these.
    """
    if path is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tailrace-functions-") as scratch:
        if path.is_dir():
            archive = Path(scratch, "functions.zip")
            _pack(path, archive)
        elif path.is_file() and path.suffix in (".zip", ".whl", ".py"):
            archive = path if path.suffix != ".whl" else Path(scratch, f"{path.stem}.zip")
            if archive is not path:
                archive.write_bytes(path.read_bytes())
        else:
            raise ConfigError(
                f"the functions' path `{path}` cannot be used",
                "it does not exist"
                if not path.exists()
                else "it is no directory, and no file .zip, .whl or .py",
                "--functions-path DIRECTORY, the one that has the module",
                code="TR-1233",
            )
        session.sparkContext.addPyFile(str(archive))
        importlib.invalidate_caches()
        yield


def _pack(directory: Path, archive: Path) -> None:
    """An archive of the files of a directory."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(directory.rglob("*")):
            inside = file.relative_to(directory)
            if file.is_file() and not any(p == "__pycache__" or p.startswith(".") for p in inside.parts):
                packed.write(file, inside)


@lru_cache(maxsize=256)
def _loaded(function: PythonFunction, where: str) -> Callable[..., Any]:
    """Import a function.

    Args:
        function: the function.
        where: the process, for errors.

    Raises:
        ConfigError: it cannot be imported, or is none that a transform can call.
    """
    try:
        module = importlib.import_module(function.module)
    except Exception as error:  # noqa: BLE001 - a module may raise anything
        missing = isinstance(error, ModuleNotFoundError) and error.name is not None
        found = f"no module `{error.name}`" if missing else _shown(error)  # type: ignore[attr-defined]
        raise ConfigError(
            f"the module of `functions.{function.name}` cannot be imported on {where}",
            f"{function}: {found}",
            _HINT_OF_PATH if missing else "correct the module",
            code="TR-1232",
        ) from None
    made: Any = getattr(module, function.attribute, None)
    if not callable(made) or not isinstance(getattr(made, RETURNS, None), pa.DataType):
        if made is None:
            problem = f"the module has no `{function.attribute}`"
        elif not callable(made):
            problem = f"it is not callable, but a {type(made).__name__}"
        else:
            problem = "it does not say what it returns"
        raise ConfigError(
            f"`functions.{function.name}` is no function that a transform can call",
            f"{function}: {problem}",
            "declare it: from tailrace.functions import returns; @returns(pa.string()) before the function",
            code="TR-1517",
        )
    return cast("Callable[..., Any]", made)


def _spark_type(function: PythonFunction) -> DataType:
    """What a function returns, as a type of Spark."""
    type_ = getattr(_loaded(function, "the driver"), RETURNS)
    try:
        return from_arrow_type(type_, prefer_timestamp_ntz=True)
    except PySparkException:
        raise ConfigError(
            f"`functions.{function.name}` is no function that a transform can call",
            f"{function} returns {type_}, which Spark does not have",
            "return numbers, text, bytes or times",
            code="TR-1517",
        ) from None


@dataclass(frozen=True)
class _Call:
    """A function of a transform, in a task."""

    function: PythonFunction
    table: str

    def __call__(self, *arguments: pa.Array, **named: pa.Array) -> pa.Array:
        function = _loaded(self.function, "a worker")
        columns = [*arguments, *named.values()]
        if not columns:
            raise self._wrong("is called without a column", "it needs at least one")
        try:
            result = function(*arguments, **named)
        except TailraceError:
            raise
        except Exception as error:  # noqa: BLE001 - a function may raise anything
            raise SinkError(
                f"`functions.{self.function.name}` has failed",
                f"{self.function}: {_shown(error)}",
                _HINT_OF_CODE,
                code="TR-1519",
                table=self.table,
            ) from None
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        type_ = getattr(function, RETURNS)
        if not isinstance(result, pa.Array) or result.type != type_:
            found = f"a {result.type}" if isinstance(result, pa.Array) else f"a {type(result).__name__}"
            raise self._wrong("returns something else than it says", f"{found}, not {type_}")
        if len(result) != len(columns[0]):
            raise self._wrong(
                "returns another number of values than it gets", f"{len(result)} for {len(columns[0])}"
            )
        return result

    def _wrong(self, problem: str, found: str) -> SinkError:
        return SinkError(
            f"`functions.{self.function.name}` {problem}",
            f"{self.function}: {found}",
            _HINT_OF_CODE,
            code="TR-1518",
            table=self.table,
        )


def _shown(error: Exception) -> str:
    """The class of an exception and where the module raised it: its text may have values of rows."""
    name = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{name} in {Path(error.filename or '?').name}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)[1:]
        if not frame.filename.startswith("<") and frame.filename != importlib.__file__
    ]
    if not frames:
        return name
    # the deepest line of the file that was entered first: below it are those of libraries
    line = [frame.lineno for frame in frames if frame.filename == frames[0].filename][-1]
    return f"{name} in {Path(frames[0].filename).name}, line {line}"
