"""The archive of Spark's classes belongs to one installation of Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from tailrace.spark.archive import archive_path


@pytest.mark.parametrize("change", ["time", "size", "name"])
def test_spark_installed_again_at_the_same_path_has_another_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(pyspark, "__path__", [str(tmp_path)])
    jar = tmp_path / "jars" / "slf4j-api.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"PK")
    os.utime(jar, (1_000, 1_000))
    first = archive_path()
    assert archive_path() == first

    match change:
        case "time":
            os.utime(jar, (1_001, 1_001))
        case "size":
            jar.write_bytes(b"PK.")
            os.utime(jar, (1_000, 1_000))
        case "name":
            jar.rename(jar.with_name("slf4j-api-2.jar"))
    assert archive_path() != first
