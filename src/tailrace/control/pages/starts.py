"""What a new pipeline file begins with, by its source and its sink."""

from __future__ import annotations

SOURCES = {
    "mysql": """\
source:
  url: mysql://db.example:3306/shop
  user: reader
  password: ${env:TAILRACE_SECRET_SHOP}
  tables: shop\\..*
""",
    "postgresql": """\
source:
  url: postgresql://db.example:5432/shop
  user: reader
  password: ${env:TAILRACE_SECRET_SHOP}
  tables: public\\..*
  slot-name: NAME
""",
}
SINKS = {
    "delta": """\
sink:
  type: delta
  path: lake/NAME
""",
    "iceberg": """\
sink:
  type: iceberg
  path: lake/NAME
""",
    "parquet": """\
sink:
  type: parquet
  path: lake/NAME
""",
    "kafka": """\
sink:
  type: kafka
  bootstrap-servers: broker.example:9092
  topic-prefix: NAME
pipeline:
  checkpoint: checkpoints/NAME
""",
}


def start(source: str, sink: str, name: str) -> str:
    """The file of a pipeline.

    Args:
        source: one of SOURCES.
        sink: one of SINKS.
        name: the pipeline's name.
    """
    return (SOURCES[source] + SINKS[sink]).replace("NAME", name)
