"""`make lock`: download all pinned files (`tailrace.pinned`) into an empty cache, and rewrite their list."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tailrace import pinned
from tailrace.spark import RELEASES, object_stores, session
from tailrace.spark.jars import cached_jars
from tailrace_dev.servers import apicurio, kafka, opensearch, rocketmq

with tempfile.TemporaryDirectory() as cache:
    os.environ["TAILRACE_CACHE"] = cache
    lines = []
    delta = [session.delta_jars(release) for release in RELEASES]
    s3 = [object_stores.s3_jars(release) for release in RELEASES]
    for name, *packages in (*delta, *s3, kafka.JARS, opensearch.JARS, rocketmq.JARS):
        lines += pinned.lines(name, cached_jars(name, *packages, pinned=False))
    lines += pinned.lines(apicurio.COLLECTION, [apicurio.archive(Path(cache) / "apicurio")])
pinned.LIST.write_text("\n".join(lines) + "\n", encoding="utf-8")
