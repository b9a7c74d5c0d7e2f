"""The two ends in Spark: source and session. Written for two releases of PySpark."""

from __future__ import annotations

import pyspark

from tailrace.errors import ConfigError

#: Releases of PySpark that Tailrace runs on, the newest last.
RELEASES = ("4.1", "4.2")
#: That of this process.
RELEASE = ".".join(pyspark.__version__.split(".")[:2])

if RELEASE not in RELEASES:
    raise ConfigError(
        f"PySpark {pyspark.__version__} is installed, and Tailrace runs on {' and '.join(RELEASES)}",
        f"it was imported from {pyspark.__path__[0]}",
        "pip install 'pyspark>=4.1,<4.3', and remove other installations from PYTHONPATH",
        code="TR-1205",
    )

#: Whether Spark tells a source where a batch begins, and how large it may be.
IS_LIMITED = RELEASE != "4.1"
