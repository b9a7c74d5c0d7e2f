"""Pipeline files: YAML to `config.model` and `config.sinks`, strictly.

An unknown key, a value of another type and a missing key are each a ConfigError that names the key's path in
the file (`sink.pathh`), what is allowed and what may have been meant. Keys are read in kebab-case and
camelCase. Secrets stay references (`${env:NAME}`) until someone connects.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import EnumType
from pathlib import Path
from typing import Any, TypeVar

from tailrace.config import several_sources
from tailrace.config.document import MOST_CHARACTERS, Section, read_document
from tailrace.config.functions import PythonFunction, parse_functions
from tailrace.config.kafka import KafkaSettings
from tailrace.config.message_content import check_propagation, check_queries
from tailrace.config.model import Converter, NamedSource, Pipeline, PipelineSettings, RouteRule, TransformRule
from tailrace.config.notifications import NotificationSettings, SignalSettings
from tailrace.config.option_values import is_host
from tailrace.config.options import GTID_SOURCES, OPTIONS, PROPAGATION, SourceOptions, parse_options
from tailrace.config.secret import Secret, is_slip, shown
from tailrace.config.separate_sources import require_separate
from tailrace.config.sinks import SINKS, SinkSettings, sink_names
from tailrace.config.snapshot_overrides import OVERRIDES, is_override
from tailrace.config.telemetry import LineageSettings, TelemetrySettings
from tailrace.errors import ConfigError
from tailrace.model.change import OP_LETTERS
from tailrace.model.column_mask import is_mask

_T = TypeVar("_T")
_R = TypeVar("_R", RouteRule, TransformRule)

_SECTIONS = (
    "source",
    "sources",
    "transform",
    "functions",
    "route",
    "sink",
    "pipeline",
    "notifications",
    "signals",
    "telemetry",
    "lineage",
)
#: Keys that a source section may have instead of `url` and `user`, as in Flink CDC.
_SOURCE_ALIASES = ("type", "hostname", "port", "database", "username")
#: Options that the pipeline sets itself.
_FIXED_OPTIONS = frozenset(
    {"shape", "topicPrefix", "schemasEnable", "checkpointPath", "samplePath", "troublePath"}
)
#: Options whose `soft-delete` is a matter of the pipeline's transforms.
_SOFT_DELETES = ("onTruncate", "onDropTable")
#: Mappings that are settings of a library: their keys are not known here.
_LIBRARIES = (".properties", ".webhook-headers", ".headers", ".catalog", ".spark", ".topic-config")
_NO_KEY = re.compile(r"[\s=]")
_TYPE_NAMES = {Section: "object", list: "array", type(None): "null"}


def load_pipeline(path: Path, source: str | None = None) -> Pipeline:
    """The pipeline that the file at `path` describes, with one of its sources.

    Args:
        path: the file.
        source: the name of one of its `sources`; None: it has one source.

    Raises:
        ConfigError: the file cannot be read, or holds something that is not allowed; or it has several
            sources, and none or no such one is named.
    """
    return chosen(load_pipelines(path), source)


def load_pipelines(path: Path) -> tuple[Pipeline, ...]:
    """The pipeline that the file at `path` describes, once for each of its sources.

    Raises:
        ConfigError: the file cannot be read, or holds something that is not allowed.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise ConfigError(f"pipeline file `{path}` cannot be read", error.strerror, code="TR-1001") from None
    except UnicodeDecodeError:
        raise ConfigError(f"pipeline file `{path}` is not UTF-8 text", code="TR-1001") from None
    return parse_pipelines(text, default_name=path.stem)


def parse_pipeline(text: str, default_name: str = "tailrace") -> Pipeline:
    """The pipeline with one source that the YAML `text` describes.

    Args:
        text: the file's content.
        default_name: the pipeline's name where the file gives none.

    Raises:
        ConfigError: it is not YAML, or holds something that is not allowed.
    """
    return chosen(parse_pipelines(text, default_name), None)


def parse_pipelines(text: str, default_name: str = "tailrace") -> tuple[Pipeline, ...]:
    """The pipeline that the YAML `text` describes, once for each of its sources.

    Args:
        text: the file's content.
        default_name: the pipeline's name where the file gives none.

    Raises:
        ConfigError: it is not YAML, or holds something that is not allowed.
    """
    given = _mapping(read_document(text), "")
    _check_keys(given, "", _SECTIONS)
    if "sources" not in given:
        return (_pipeline(given, default_name),)
    found: dict[str, Pipeline] = {}
    for number, (name, document) in enumerate(several_sources.split(given)):
        try:
            found[name] = _pipeline(document, default_name)
        except ConfigError as error:
            message = error.message.replace("`source.", f"`sources[{number}].")
            raise ConfigError(message, error.detail, error.hint, code=error.code) from None
    require_separate(found)
    return tuple(_of_source(pipeline, name) for name, pipeline in found.items())


def _of_source(pipeline: Pipeline, source: str) -> Pipeline:
    named = NamedSource(source, pipeline.settings.name, pipeline.checkpoint)
    settings = dataclasses.replace(
        pipeline.settings,
        name=f"{named.pipeline}.{source}",
        checkpoint=f"{named.checkpoint.rstrip('/')}/sources/{source}",
    )
    return dataclasses.replace(pipeline, settings=settings, named=named)


def chosen(pipelines: Sequence[Pipeline], source: str | None) -> Pipeline:
    """The pipeline with the source of that name; None: it has one source.

    Raises:
        ConfigError: it has several sources, and none or no such one is named.
    """
    names = [pipeline.named.name for pipeline in pipelines if pipeline.named is not None]
    if source is None and not names:
        return pipelines[0]
    if source in names:
        return pipelines[names.index(source)]
    if not names:
        raise ConfigError(
            "the pipeline file has no `sources`", f"found --source {source}", "leave it out", code="TR-1320"
        )
    raise ConfigError(
        "the pipeline has several sources" if source is None else f"there is no source {shown(source)}",
        f"found: {', '.join(names)}",
        f"name one of them: --source {names[0]}",
        code="TR-1320",
    )


def _pipeline(given: Mapping[str, Any], default_name: str) -> Pipeline:
    for section in ("source", "sink"):
        if section not in given:
            raise ConfigError(
                f"section `{section}` is missing", f"a pipeline has: {', '.join(_SECTIONS)}", code="TR-1006"
            )
    options, source, marking = _source(_mapping(given["source"], "source"))
    sinks = _sinks(given["sink"])
    settings = _dataclass(PipelineSettings, given.get("pipeline") or {}, "pipeline")
    transforms = _rules(TransformRule, given.get("transform") or [], "transform")
    for i, rule in enumerate(transforms):
        _check_transform(rule, f"transform[{i}]")
    routes = _rules(RouteRule, given.get("route") or [], "route")
    _check_soft_deletes(marking, transforms)
    _check_truncates(sinks, transforms, routes)
    check_queries(source, sinks, transforms, routes)
    check_propagation(source, sinks)
    filled = _filled(settings, sinks, default_name)
    notifications = _dataclass(NotificationSettings, given.get("notifications") or {}, "notifications")
    signals = _dataclass(SignalSettings, given.get("signals") or {}, "signals")
    telemetry = lineage = None
    if "telemetry" in given:  # all of it has defaults
        telemetry = _dataclass(TelemetrySettings, given["telemetry"] or {}, "telemetry")
    if "lineage" in given:
        lineage = _dataclass(LineageSettings, given["lineage"] or {}, "lineage")
    pipeline = Pipeline(
        source,
        options,
        sinks,
        transforms,
        routes,
        filled,
        notifications,
        signals,
        telemetry,
        lineage,
        soft_deletes=bool(marking),
        functions=_functions(given.get("functions") or {}),
    )
    if source.former_columns == "follow" and not pipeline.follows_former_columns:
        raise ConfigError(
            "`source.former-columns` cannot be `follow` here",
            "some target does not rename and drop columns with its table, so its rows would not be those of "
            "the table",
            "leave it out: it is set where all targets do",
            code="TR-1033",
        )
    return pipeline


def _filled(
    settings: PipelineSettings, sinks: tuple[SinkSettings, ...], default_name: str
) -> PipelineSettings:
    checkpoint = settings.checkpoint
    if checkpoint is None:
        path = next((p for p in (getattr(sink, "path", None) for sink in sinks) if p is not None), None)
        if path is None:
            raise ConfigError(
                "`pipeline.checkpoint` is missing",
                f"a {sinks[0].type} sink has no path to keep it below",
                "name a directory: pipeline: {checkpoint: ...}",
                code="TR-1006",
            )
        checkpoint = path.rstrip("/") + "/_tailrace/checkpoint"
    return dataclasses.replace(settings, name=settings.name or default_name, checkpoint=checkpoint)


# ---- sections ----------------------------------------------------------------------------------------


def _source(given: Mapping[str, Any]) -> tuple[dict[str, str], SourceOptions, list[str]]:
    """The source's options, as texts and typed, and those that ask for a soft delete, by name in the file.

    Targets follow such a change as with `apply`; it is the transforms that mark rows.
    """
    known = {_kebab(o.name): o.name for o in OPTIONS if o.name not in _FIXED_OPTIONS}
    masks = {name: value for name, value in given.items() if is_mask(str(name)) or is_override(str(name))}
    if masks:
        given = {name: value for name, value in given.items() if name not in masks}
    values = _check_keys(given, "source", [*known, *_SOURCE_ALIASES])
    aliases = {name: values.pop(name, None) for name in _SOURCE_ALIASES}
    options = {known[name]: _scalar(value, f"source.{name}") for name, value in values.items()}
    options |= {str(mask): _scalar(value, f"source.{mask}") for mask, value in masks.items()}
    if aliases["username"] is not None:
        _exclusive(options, "user", "username")
        options["user"] = _scalar(aliases["username"], "source.username")
    if aliases["hostname"] is not None:
        _exclusive(options, "url", "hostname")
        dialect = _scalar(aliases["type"] or "mysql", "source.type")
        host = _scalar(aliases["hostname"], "source.hostname")
        if not is_host(host):
            raise ConfigError(
                "`source.hostname` is wrong",
                "found a value that is not shown, allowed: a host name or address",
                "the port is `port`; user and password are `username` and `password`",
                code="TR-1010",
            )
        port = "" if aliases["port"] is None else f":{_typed(int, aliases['port'], 'source.port')}"
        database = (
            "" if aliases["database"] is None else f"/{_scalar(aliases['database'], 'source.database')}"
        )
        options["url"] = f"{dialect}://{host}{port}{database}"
    elif name := next((n for n in ("port", "database") if aliases[n] is not None), None):
        raise ConfigError(
            f"`source.{name}` needs `source.hostname`", f"a `url` holds its {name}", code="TR-1005"
        )
    for name, instead in (("url", "`hostname` (and `port`)"), ("user", "`username`"), ("tables", None)):
        if name not in options:
            or_else = f" or {instead}" if instead else ""
            raise ConfigError(f"`source.{name}` is missing", f"give `{name}`{or_else}", code="TR-1006")
    for name in ("password", "archiveKey", "columnMaskSalt"):
        if name in options:
            _secret(options[name], f"source.{_kebab(name)}")
    options["shape"] = "cells"
    marking = [name for name in _SOFT_DELETES if options.get(name) == "soft-delete"]
    options |= dict.fromkeys(marking, "apply")
    parsed = parse_options(options, where="source option")
    if aliases["type"] is not None and aliases["type"] != parsed.dialect:
        raise ConfigError(
            "`source.type` and `source.url` disagree",
            f"found type {shown(str(aliases['type']))}",
            code="TR-1005",
        )
    return options, parsed, [f"source.{_kebab(name)}" for name in marking]


def _check_soft_deletes(names: Sequence[str], transforms: Sequence[TransformRule]) -> None:
    """Reject a soft delete without a transform that marks rows (`pipeline.soft_deletes`: of each table)."""
    if names and all(rule.converter_after_transform is not Converter.SOFT_DELETE for rule in transforms):
        raise ConfigError(
            f"`{names[0]}` cannot ask for a soft delete here",
            "no transform of the pipeline marks rows as deleted",
            "transform: [{source-table: ..., projection: \"\\\\*, __data_event_type__ = '-D' AS deleted\", "
            "converter-after-transform: SOFT_DELETE}]; or `apply` and `mode: scd2` (Delta), which ends the "
            "rows' versions and keeps them",
            code="TR-1032",
        )


def _exclusive(options: Mapping[str, str], name: str, alias: str) -> None:
    if name in options:
        raise ConfigError(
            f"`source.{name}` and `source.{alias}` are the same", "give one of them", code="TR-1005"
        )


def _scalar(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    name = path.partition(".")[2]
    is_list = path == "source.tables" or path.endswith(".list") or is_mask(name)
    is_list = is_list or name in (OVERRIDES, *PROPAGATION[1:], *GTID_SOURCES)
    if isinstance(value, list) and is_list:
        return ",".join(_scalar(v, f"{path}[{i}]") for i, v in enumerate(value))
    if not isinstance(value, str | int | float):
        raise _wrong_type("str", value, path)
    return str(value)


def _sinks(given: Any) -> tuple[SinkSettings, ...]:
    if not isinstance(given, list):
        return (_sink(_mapping(given, "sink"), "sink"),)
    if not given:
        raise ConfigError("`sink` is an empty list", "a pipeline has at least one sink", code="TR-1006")
    sinks = tuple(_sink(_mapping(one, f"sink[{i}]"), f"sink[{i}]") for i, one in enumerate(given))
    paths = [path.rstrip("/") for path in (getattr(sink, "path", None) for sink in sinks) if path is not None]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two sinks have the path `{twice}`", "needed: a path of its own for each sink", code="TR-1015"
        )
    names = sink_names(sinks)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two sinks have the name {shown(twice)}",
            "needed: a `name` of its own for each sink",
            code="TR-1015",
        )
    return sinks


def _sink(given: Mapping[str, Any], path: str) -> SinkSettings:
    if "type" not in given:
        raise ConfigError(f"`{path}.type` is missing", f"allowed: {', '.join(SINKS)}", code="TR-1006")
    kind = _typed(str, given["type"], f"{path}.type")
    if kind not in SINKS:
        raise ConfigError(
            f"unknown value {shown(kind)} at `{path}.type`",
            f"allowed: {', '.join(SINKS)}",
            _meant(kind, SINKS),
            code="TR-1008",
        )
    try:
        return _dataclass(SINKS[kind], given, path, also=("type",))
    except ConfigError as error:
        raise ConfigError(_at(error.message, path), error.detail, error.hint, code=error.code) from None


def _at(message: str, path: str) -> str:
    """`message` of a settings class, which names every sink's setting as `sink.name`, with the sink's path.

    The name comes last: in front of it the message may show a value.
    """
    before, mark, name = message.rpartition("`sink.")
    return f"{before}`{path}.{name}" if mark else message


def _rules(cls: type[_R], given: Any, section: str) -> tuple[_R, ...]:
    if not isinstance(given, list):
        raise _wrong_type("array", given, section)
    rules = []
    for i, item in enumerate(given):
        rule = _dataclass(cls, item, f"{section}[{i}]")
        try:
            re.compile(rule.source_table)
        except re.error as error:
            raise ConfigError(
                f"`{section}[{i}].source-table` is not a regular expression", str(error), code="TR-1010"
            ) from None
        rules.append(rule)
    return tuple(rules)


def _functions(given: Any) -> tuple[PythonFunction, ...]:
    listed = _mapping(given, "functions")
    return parse_functions({str(k): _scalar(v, f"functions.{k}") for k, v in listed.items()})


def _check_truncates(
    sinks: Sequence[SinkSettings], transforms: Sequence[TransformRule], routes: Sequence[RouteRule]
) -> None:
    """Reject messages of TRUNCATE with the schema of a transformed table, which only its rows have."""
    if not transforms and not any(rule.shard_column for rule in routes):
        return
    for sink in sinks:
        if isinstance(sink, KafkaSettings) and "t" not in sink.skipped_operations and sink.carries_schemas:
            raise ConfigError(
                "`sink.skipped-operations` must have `t` here",
                "a TRUNCATE has no rows, and messages with a schema would not have that of the rows which a "
                "transform or a route's shard column makes",
                "add `t`; or use JSON without schemas",
                code="TR-1010",
            )


def _check_transform(rule: TransformRule, path: str) -> None:
    if rule.mask_hash and rule.mask_salt is None:
        raise ConfigError(
            f"`{path}.mask-salt` is missing",
            "without a salt, `mask-hash` can be undone by hashing guesses",
            "mask-salt: ${env:NAME}",
            code="TR-1006",
        )
    for name, length in rule.truncate.items():
        if not length.isdecimal():
            raise ConfigError(
                f"`{path}.truncate.{name}` must be a number of characters",
                f"found {shown(length)}",
                code="TR-1010",
            )
    unknown = [op for op in rule.skipped_operations if op not in OP_LETTERS]
    if unknown:
        raise ConfigError(
            f"unknown value {shown(unknown[0])} at `{path}.skipped-operations`",
            f"allowed: {', '.join(OP_LETTERS)}",
            code="TR-1008",
        )


# ---- values by annotation ----------------------------------------------------------------------------


def _dataclass(cls: type[_T], given: Any, path: str, also: Iterable[str] = ()) -> _T:
    hints = typing.get_type_hints(cls)
    fields = [f for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
    names = {_kebab(f.name): f for f in fields}
    values = _check_keys(_mapping(given, path), path, [*also, *names])
    for key, spec in names.items():
        no_default = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if key not in values and no_default:
            raise ConfigError(
                f"`{path}.{key}` is missing", f"`{path}` has: {', '.join(names)}", code="TR-1006"
            )
    typed = {
        names[k].name: _typed(hints[names[k].name], v, f"{path}.{k}") for k, v in values.items() if k in names
    }
    return cls(**typed)


def _typed(hint: Any, value: Any, path: str) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None:
            return None
        (hint,) = [a for a in typing.get_args(hint) if a is not type(None)]
    if typing.get_origin(hint) is Mapping:
        return _texts(_mapping(value, path), path)
    if hint is Secret:
        return _secret(_typed(str, value, path), path)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, value, path)  # type: ignore[arg-type]
    if typing.get_origin(hint) is tuple:
        listed = value.split(",") if isinstance(value, str) else value
        if not isinstance(listed, list):
            raise _wrong_type("array", value, path)
        (item, *_) = typing.get_args(hint)
        if dataclasses.is_dataclass(item):
            return tuple(_dataclass(item, v, f"{path}[{i}]") for i, v in enumerate(listed))  # type: ignore[arg-type]
        return tuple(_scalar(v, f"{path}[{i}]").strip() for i, v in enumerate(listed))
    if isinstance(hint, EnumType):
        allowed = [member.value for member in hint]  # type: ignore[var-annotated]
        if value not in allowed:
            found = shown(value) if isinstance(value, str) else f"a `{_name(value)}`"
            raise ConfigError(
                f"unknown value {found} at `{path}`",
                f"allowed: {', '.join(allowed)}",
                _meant(str(value), allowed),
                code="TR-1008",
            )
        return hint(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _wrong_type(hint.__name__, value, path)
    return value


def _texts(given: Mapping[str, Any], path: str) -> dict[str, str]:
    """A mapping whose keys are not known here: settings of a library, or columns."""
    texts = {}
    for key, value in given.items():
        place = f" at {given.places[key]}" if isinstance(given, Section) else ""
        # `sasl.password geheim:`: a key without a value, and one with a space, may be a password.
        if path.endswith(_LIBRARIES) and (value is None or _NO_KEY.search(key)):
            raise ConfigError(
                f"the key in `{path}`{place} is wrong",
                "it has no value" if value is None else "it holds a space or a `=`",
                "write each setting as `name: value`",
                code="TR-1010",
            )
        texts[key] = _scalar(value, f"{path}.{key}")
        _secret(texts[key], f"{path}.{key}")
    return texts


def _secret(text: str, path: str) -> Secret:
    try:
        return Secret(text)
    except ValueError as error:
        raise ConfigError(f"`{path}` is wrong", str(error), code="TR-1010") from None


def _mapping(value: Any, path: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _wrong_type("object", value, path or "the pipeline file")
    return value


def _check_keys(given: Mapping[Any, Any], path: str, known: Iterable[str]) -> dict[str, Any]:
    """`given` with its keys in kebab-case, all of them known."""
    allowed = list(known)
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = _kebab(str(key))
        place = f" at {given.places[key]}" if isinstance(given, Section) else ""
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            # A key that is not a misspelling may be anything, even a password.
            if near and is_slip(name, near[0]):
                found = f"unknown key `{path}.{key}`" if path else f"unknown key `{key}`"
            else:
                found = f"unknown key in `{path}`" if path else "unknown section"
            raise ConfigError(
                found + place,
                f"allowed: {', '.join(sorted(allowed))}",
                f"did you mean `{near[0]}`?" if near else None,
                code="TR-1007",
            )
        if name in values:
            raise ConfigError(
                f"`{path}.{name}` is given twice{place}",
                "once in kebab-case and once in camelCase",
                code="TR-1005",
            )
        values[name] = value
    return values


def _meant(name: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean `{near[0]}`?" if near else None


def _wrong_type(expected: str, value: Any, path: str) -> ConfigError:
    return ConfigError(f"expected `{expected}`, got `{_name(value)}` at `{path}`", code="TR-1009")


def _name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", name).replace("_", "-").lower()
