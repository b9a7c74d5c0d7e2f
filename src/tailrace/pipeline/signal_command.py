"""The command `tailrace signal`: sends a signal to a pipeline, by a file beside its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tailrace.errors import ConfigError
from tailrace.pipeline.file import load_pipeline
from tailrace.pipeline.table_requests import send_signal
from tailrace.printable import printable


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", metavar="NAME", help="One of the file's `sources`; needed where it has several.")
@click.argument("kind", metavar="TYPE")
@click.option("--data", default="{}", metavar="JSON", help="The signal's arguments, as Debezium's.")
@click.option(
    "--id", "id_", metavar="ID", help="A name for it, which notifications carry; default: a new one."
)
def signal(pipeline_file: Path, source: str | None, kind: str, data: str, id_: str | None) -> None:
    """Send a signal of Debezium's kinds to a pipeline.

    TYPE is execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log, resync, park, resume, or
    another one of the guide "Signals". A running pipeline obeys with its next batch, a stopped one when it is
    started; either answers by a notification.

    tailrace signal shop.yaml execute-snapshot --data '{"data-collections": ["shop.orders"]}'
    """
    pipeline = load_pipeline(pipeline_file, source)
    sent = send_signal(pipeline, kind, _object(data), id_)
    click.echo(f"signal {printable(sent)}: {kind}")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError("`--data` is not JSON", str(error), code="TR-1369") from None
    if not isinstance(value, dict):
        raise ConfigError("`--data` is not a JSON object", code="TR-1369")
    return value
