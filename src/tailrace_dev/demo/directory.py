"""The demo's directory: what it writes there, for the user to read and run again.

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
# (as long as the demo's server runs: tailrace demo --keep)
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
        """Spark's checkpoint, where a pipeline has it by default."""
        return self.tables / "_tailrace" / "checkpoint"

    @property
    def pipeline(self) -> Path:
        """The pipeline file."""
        return self.root / "pipeline.yaml"

    @property
    def password(self) -> Path:
        """The password of the pipeline's user, readable by nobody else."""
        return self.root / "password"

    @property
    def stats(self) -> Path:
        """What the writers have done."""
        return self.root / "writers.json"

    def prepare(self) -> None:
        """Make it an empty directory; one of an earlier demo is emptied.

        Raises:
            TailraceError: it holds something else.
        """
        if self.root.exists() and any(self.root.iterdir()):
            if not self.pipeline.exists() or not self.pipeline.read_text("utf-8").startswith(_MARKER):
                raise TailraceError(
                    f"directory `{self.root}` is not empty",
                    "it holds files that no demo wrote",
                    "name another one: tailrace demo --dir PATH",
                )
            shutil.rmtree(self.root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.pipeline.write_text(f"{_MARKER}\n", encoding="utf-8")

    def make_password(self) -> str:
        """A new password, kept in its file."""
        password = secrets.token_urlsafe(16)
        self.password.touch(mode=0o600)
        self.password.write_text(password, encoding="utf-8")
        return password

    def write_pipeline(self, source: Sequence[str], host: str, port: int, chunk_rows: int) -> None:
        """Write the pipeline file; `source`: the lines that say what the server is."""
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
