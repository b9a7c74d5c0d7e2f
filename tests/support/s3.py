"""An object store with S3's protocol: moto's server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from tailrace_dev.servers.server import free_port
from tests.support.packages import packages_of
from tests.support.wait import listens, wait_until

#: What it is installed from, with the SHA-256 of each file, in pip's form; written by `make lock`.
_REQUIREMENTS = Path(__file__).with_suffix(".lock")
KEY, SECRET = "tailrace", "secret-of-the-store"


@dataclass(frozen=True)
class ObjectStore:
    """The server, with a bucket `lake`.

    Args:
        port: where it listens, at 127.0.0.1.
    """

    port: int

    @property
    def settings(self) -> dict[str, str]:
        """Settings of `pipeline.spark`."""
        return {
            "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{self.port}",
            "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "${env:STORE_KEY}",
            "spark.hadoop.fs.s3a.secret.key": "${env:STORE_SECRET}",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the settings refer to."""
        return {"STORE_KEY": KEY, "STORE_SECRET": SECRET}

    def files(self) -> fs.S3FileSystem:
        """The store by Arrow."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            region="eu-central-1",
            allow_bucket_creation=True,
        )


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A running one."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, "PYTHONPATH": str(packages_of(_REQUIREMENTS)), "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: listens(port), 60)
        store = ObjectStore(port)
        store.files().create_dir("lake")
        yield store
    finally:
        server.kill()
        server.wait()
