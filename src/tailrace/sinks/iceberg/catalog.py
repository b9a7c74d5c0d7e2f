"""The catalog of a sink's tables: opened by pyiceberg's properties, its names, its failures.

Catalogs differ in what they take for a name. Hive and Glue have one level of namespaces and treat names that
differ by case as one; Hive takes letters, digits and `_` only. What a catalog would reject, or mix, is an
error before the first row is written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

import requests
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table, TableProperties

from tailrace.config.secret import hidden, resolve_all
from tailrace.config.sinks import IcebergSettings
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.sinks.iceberg.names import identifier
from tailrace.spark.checkpoint import Directory, absolute, is_local
from tailrace.spark.object_stores import iceberg_properties

_HIVE_NAME = re.compile(r"[A-Za-z0-9_]+")

#: Failures that pass, and others, of the packages that only some catalogs need: module and class.
_PASSING = (
    ("botocore.exceptions", "ConnectionError"),
    ("botocore.exceptions", "HTTPClientError"),
    ("sqlalchemy.exc", "OperationalError"),
    ("thrift.transport.TTransport", "TTransportException"),
)
_LASTING = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("thrift.Thrift", "TException"),
)
#: What the sink asks a catalog while it writes a table.
_ASKED = ("commit_table", "create_namespace_if_not_exists", "create_table", "load_table")
#: How Hive's answer begins if it compares a table's columns with the former ones, by their places.
_HIVE_COMPARES = "The following columns have types incompatible with the existing columns"
_RETRIES = "glue.max-retries"
#: AWS's codes of failures that pass.
_BUSY = ("InternalServiceException", "OperationTimeoutException", "ThrottlingException")


def open_catalog(settings: IcebergSettings, root: str) -> Catalog:
    """The configured catalog, or by default one in a SQLite file next to the tables.

    Raises:
        SinkError: it cannot be opened, or refuses the token.
        TransientSinkError: it cannot be reached.
    """
    if settings.catalog:
        given = _properties(settings, root)
        with answered(settings):
            try:
                found = load_catalog("tailrace", **given)
                if _kind(settings.catalog) == "hive":
                    for name in _ASKED:
                        setattr(found, name, _answered_by_hive(settings, getattr(found, name)))
                return found
            except (requests.RequestException, exceptions.RESTError):
                raise
            except Exception as error:  # noqa: BLE001 - of any library; its message may hold secrets
                raise SinkError(
                    "the Iceberg catalog cannot be opened",
                    f"{type(error).__name__}: {hidden(str(error), map(str, given.values()))}",
                    "check `catalog` in the sink's section: pyiceberg's properties of a catalog",
                    code="TR-7201",
                ) from None
    if not is_local(root):
        raise SinkError(
            f"an Iceberg sink at `{root}` needs a catalog",
            "without one the catalog is a SQLite file, and that needs a local path",
            "catalog: {type: rest, uri: ...} in the sink's section",
            code="TR-7202",
        )
    directory = absolute(root)
    Directory(directory).write("_tailrace/iceberg.txt", "The catalog of the tables in this directory.\n")
    uri = f"sqlite:///{directory}/_tailrace/iceberg.db"
    return load_catalog("tailrace", type="sql", uri=uri, warehouse=root)


@contextmanager
def answered(settings: IcebergSettings) -> Iterator[None]:
    """Say what a catalog's failure means.

    Raises:
        TransientSinkError: it cannot be reached, or is too busy.
        SinkError: it refuses what was asked.
    """
    try:
        yield
    except (*_passing(), *_lasting()) as error:
        if _passes(error):
            raise TransientSinkError(
                f"the Iceberg catalog{_address(settings)} does not answer",
                _described(error, settings),
                "the catalog must run, and be within reach of this machine",
                code="TR-7206",
            ) from None
        if _HIVE_COMPARES in str(error):
            raise SinkError(
                f"the Hive metastore{_address(settings)} lets no column change its place or type",
                _described(error, settings),
                "set `hive.metastore.disallow.incompatible.col.type.changes` to `false` in the metastore, as "
                "all writers of Iceberg tables need, then start the pipeline again",
                code="TR-7930",
            ) from None
        raise SinkError(
            f"the Iceberg catalog{_address(settings)} refuses what the sink asks for",
            _described(error, settings),
            "check the token or key in `sink.catalog`, and that its user may create and alter tables",
            code="TR-7207",
        ) from None


def _answered_by_hive(settings: IcebergSettings, ask: Callable[..., Any]) -> Callable[..., Any]:
    """A catalog's method whose failures are the sink's.

    Thrift's are immutable: on its way through a generator that is a context manager, such a failure would
    become a TypeError, as `contextlib` gives it the traceback (CPython 3.11 to 3.13).
    """

    @wraps(ask)
    def asked(*given: Any, **named: Any) -> Any:
        try:
            return ask(*given, **named)
        except tuple(_loaded([("thrift.Thrift", "TException")])):
            with answered(settings):
                raise

    return asked


def tried_once(table: Table) -> Table:
    """A table whose next commit is made once, or not at all if another one came first.

    pyiceberg repeats an append behind another writer's commit, which may have brought the same batch.
    """
    table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"  # of this copy: no commit sends it
    return table


def table_name(settings: IcebergSettings, target: str) -> str:
    """The name of a target's table, equal for all names that the catalog takes for one.

    Raises:
        ConfigError: the catalog takes no such name.
    """
    names = identifier(target)
    kind = _kind(settings.catalog)
    wrong = [name for name in names if kind == "hive" and not _HIVE_NAME.fullmatch(name)]
    levels = kind in ("hive", "glue") and len(names) != 2
    if wrong or levels:
        needed = "letters, digits and `_`" if wrong else "one namespace and a name"
        raise ConfigError(
            f"the {kind.capitalize()} catalog takes no table named `{'.'.join(names)}`",
            f"found {f'`{wrong[0]}`' if wrong else f'{len(names) - 1} namespaces'}, needed {needed}",
            "change the `sink-table` of its route, or leave the table out of `tables`",
            code="TR-7208",
        )
    name = ".".join(names)
    return name.lower() if kind in ("hive", "glue") else name


def _kind(catalog: Mapping[str, str]) -> str:
    """The type of a catalog, with Glue's REST endpoint as Glue."""
    scheme = urlsplit(catalog.get("uri", "")).scheme
    kind = catalog.get("type", "hive" if scheme == "thrift" else "")
    return "glue" if catalog.get("rest.signing-name") == "glue" else kind.lower()


def _properties(settings: IcebergSettings, root: str) -> dict[str, Any]:
    given: dict[str, Any] = {
        **iceberg_properties(root),
        **resolve_all(settings.catalog, "sink.catalog"),
    }
    if str(given.get(_RETRIES, "")).isdecimal():
        given[_RETRIES] = int(given[_RETRIES])  # pyiceberg 0.12 takes no text
    return given


def _described(error: BaseException, settings: IcebergSettings) -> str:
    """A failure's first line, without secrets."""
    given = _properties(settings, absolute(settings.path)).values()
    text = hidden(str(error), map(str, given)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _address(settings: IcebergSettings) -> str:
    """Where the catalog is, as far as the settings say so without a secret."""
    place = urlsplit(settings.catalog.get("uri") or settings.catalog.get("glue.endpoint") or "")
    host = place.netloc.rpartition("@")[2]
    return f" at `{host}`" if host and "$" not in host else ""


def _passing() -> tuple[type[Exception], ...]:
    return (
        requests.ConnectionError,
        requests.Timeout,
        exceptions.ServerError,
        exceptions.ServiceUnavailableError,
        exceptions.TooManyRequestsError,
        *_loaded(_PASSING),
    )


def _lasting() -> tuple[type[Exception], ...]:
    return (exceptions.RESTError, requests.RequestException, *_loaded(_LASTING))


def _passes(error: Exception) -> bool:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of botocore's ClientError
        code = str(response.get("Error", {}).get("Code", ""))
        status = str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        return code in _BUSY or status.startswith("5")
    return isinstance(error, _passing())


def _loaded(names: Iterable[tuple[str, str]]) -> list[type[Exception]]:
    """Classes of modules, as far as these are loaded: no other module can have raised them."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return [kind for kind in found if kind is not None]
