"""The sections `telemetry` and `lineage`."""

from __future__ import annotations

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.config.telemetry import LineageSettings, TelemetrySettings
from tailrace.errors import ConfigError


def pipeline(text: str) -> Pipeline:
    return parse_pipeline(
        "source: {url: 'mysql://h', user: u, tables: 'shop.*'}\n"
        "sink: {type: console}\n"
        "pipeline: {checkpoint: /tmp/c}\n" + text
    )


def test_nothing_is_sent_unless_the_section_is_there() -> None:
    assert (pipeline("").telemetry, pipeline("").lineage) == (None, None)
    found = pipeline("telemetry:\nlineage:\n")
    assert (found.telemetry, found.lineage) == (TelemetrySettings(), LineageSettings())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("telemetry: {endpoint: 'collector:4317'}", "`telemetry.endpoint` is wrong"),
        ("telemetry: {endpoint: 'http://u:p@collector'}", "`telemetry.endpoint` holds a user or password"),
        ("telemetry: {traces: false, metrics: false}", "section `telemetry` has no effect"),
        ("lineage: {url: marquez}", "`lineage.url` is wrong"),
        ("lineage: {api-key: '${env:KEY}'}", "`lineage.api-key` has no effect"),
        ("lineage: {endpoint: x}", "unknown key in `lineage`"),
    ],
)
def test_wrong_sections_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pipeline(text)
