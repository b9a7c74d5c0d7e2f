"""The two ends in Spark: source and session. Written for one release of PySpark, which is looked at here."""

from __future__ import annotations

import pyspark

from tailrace.errors import ConfigError

if not pyspark.__version__.startswith("4.2."):
    raise ConfigError(
        f"PySpark {pyspark.__version__} is installed, and Tailrace runs on 4.2",
        f"it was imported from {pyspark.__path__[0]}",
        "pip install 'pyspark>=4.2,<4.3', and remove other installations from PYTHONPATH",
        code="TR-1205",
    )
