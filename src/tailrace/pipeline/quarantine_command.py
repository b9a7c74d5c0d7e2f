"""The command `tailrace quarantine`: shows the rows that sinks have put aside, and clears them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tailrace.config.model import Pipeline
from tailrace.config.sinks import sink_names
from tailrace.pipeline.file import load_pipeline, load_pipelines
from tailrace.printable import printable
from tailrace.sinks.base import StreamId
from tailrace.sinks.quarantine import SinkQuarantine, plain
from tailrace.sinks.registry import quarantine_of
from tailrace.spark.checkpoint import Checkpoint


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, rows included.")
@click.option(
    "--clear",
    "cleared",
    multiple=True,
    metavar="TABLE",
    help="Forget the rows of a table (`database.table`) that have been dealt with: they do not count for "
    "`max-quarantined` any more. May be repeated.",
)
@click.option("--source", metavar="NAME", help="One of the file's `sources`; default: all.")
def quarantine(pipeline_file: Path, as_json: bool, cleared: tuple[str, ...], source: str | None) -> None:
    """Show the rows that targets have refused, and that are put aside (`on-refused-row: quarantine`).

    Each with its table, key, position in the log, reason and remedy; with --json the row itself, too. To get
    the rows into the targets, remove the cause, then `tailrace resync PIPELINE.YAML TABLE`.
    """
    pipelines = load_pipelines(pipeline_file) if source is None else (load_pipeline(pipeline_file, source),)
    found: list[dict[str, Any]] = []
    for pipeline in pipelines:
        pipeline.require_extras()
        for name, of_sink in _quarantines(pipeline):
            if cleared:
                _clear(name, of_sink, cleared)
                continue
            named = {"source": pipeline.source_name} if pipeline.named is not None else {}
            found += [{**named, "sink": name, **asdict(row)} for row in of_sink.rows()]
    if as_json:
        click.echo(json.dumps({"v": 1, "rows": found}, default=plain).replace("\x7f", "\\u007f"))
    elif not cleared:
        _show(found)


def _quarantines(pipeline: Pipeline) -> list[tuple[str, SinkQuarantine]]:
    query = Checkpoint(pipeline.checkpoint).query_id()
    if query is None:
        return []
    stream = StreamId(pipeline.settings.name, query)
    named = zip(sink_names(pipeline.sinks), pipeline.sinks, strict=True)
    found = [(name, quarantine_of(settings, pipeline, stream)) for name, settings in named]
    return [(name, of_sink) for name, of_sink in found if of_sink is not None]


def _clear(name: str, of_sink: SinkQuarantine, tables: Sequence[str]) -> None:
    for table in tables:
        click.echo(f"sink {printable(name)}: {of_sink.clear(table)} rows of {printable(table)} cleared")


def _show(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        click.echo("no row is in quarantine")
        return
    tables: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        tables.setdefault((row["sink"], row["table"]), []).append(row)
    for (sink, table), of_table in sorted(tables.items()):
        click.echo(printable(f"sink {sink}, table {table}: {len(of_table)}"))
        for row in of_table:
            key = "?" if row["key"] is None else json.dumps(row["key"], default=plain, ensure_ascii=False)
            code = f" [{row['code']}]" if row["code"] else ""
            column = f" column `{row['column']}`:" if row["column"] else ""
            click.echo(
                printable(
                    f"  {row['op']} {key} at {row['position']}, batch {row['batch']}:{column}"
                    f" {row['reason']}{code}"
                )
            )
        for remedy in dict.fromkeys(row["remedy"] for row in of_table if row["remedy"]):
            click.echo(printable(f"  remedy: {remedy}"))
