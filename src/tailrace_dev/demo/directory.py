"""The demo's directory: its files, for the user to read and run again.

pipeline.yaml  password  *.log  writers.json  tables/<database>.<table>  tables/_tailrace/checkpoint
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace_dev.demo.shop import DATABASE, TABLES

_MARKER = "# Written by `tailrace demo`."

_PIPELINE = """\
{marker} Run it again: tailrace run {file}
# (while the demo's server runs: tailrace demo --keep)
source:
  {source}
  hostname: {host}
  port: {port}
  username: tailrace
  password: ${{file:{password_file}}}
  tables: {database}\\.\\w+
  snapshot-chunk-rows: {chunk_rows}

sink:
  type: delta
  path: {tables}
  mode: upsert

pipeline:
  name: tailrace-demo
"""

_SNIPPET = """\
from tailrace.spark.session import spark_session

spark = spark_session("look", delta=True)
for name in {names!r}:
    spark.read.format("delta").load(f"{tables}/{database}.{{name}}").createOrReplaceTempView(name)
spark.sql("SELECT status, count(*), sum(total) FROM orders GROUP BY status ORDER BY status").show()
spark.sql("DESCRIBE HISTORY delta.`{tables}/{database}.orders`").select("version", "operation").show()
"""


@dataclass(frozen=True)
class DemoDirectory:
    """The directory and its files."""

    root: Path

    @property
    def tables(self) -> Path:
        """Directory of the Delta tables."""
        return self.root / "tables"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint, in a pipeline's default directory."""
        return self.tables / "_tailrace" / "checkpoint"

    @property
    def pipeline(self) -> Path:
        """The pipeline file."""
        return self.root / "pipeline.yaml"

    @property
    def password(self) -> Path:
        """The password of the pipeline's user; only the current user can read it."""
        return self.root / "password"

    @property
    def stats(self) -> Path:
        """The writers' statistics."""
        return self.root / "writers.json"

    def prepare(self) -> None:
        """Create the directory, or empty that of an earlier demo.

        Raises:
            TailraceError: it contains other files.
        """
        if self.root.exists() and any(self.root.iterdir()):
            if not self.pipeline.exists() or not self.pipeline.read_text("utf-8").startswith(_MARKER):
                raise TailraceError(
                    f"directory `{self.root}` is not empty",
                    "it contains files that no demo wrote",
                    "choose another one: tailrace demo --dir PATH",
                    code="TR-9001",
                )
            shutil.rmtree(self.root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.pipeline.write_text(f"{_MARKER}\n", encoding="utf-8")

    def make_password(self) -> str:
        """Generate a password and write it to its file."""
        password = secrets.token_urlsafe(16)
        self.password.touch(mode=0o600)
        self.password.write_text(password, encoding="utf-8")
        return password

    def write_pipeline(self, source: Sequence[str], host: str, port: int, chunk_rows: int) -> None:
        """Write the pipeline file; `source`: the lines about the kind of server."""
        text = _PIPELINE.format(
            marker=_MARKER,
            file=self.pipeline,
            source="\n  ".join(source),
            host=host,
            port=port,
            password_file=self.password,
            database=DATABASE,
            chunk_rows=chunk_rows,
            tables=self.tables,
        )
        self.pipeline.write_text(text, encoding="utf-8")

    def snippet(self) -> str:
        """Python that queries the tables."""
        return _SNIPPET.format(names=list(TABLES), tables=self.tables, database=DATABASE)
