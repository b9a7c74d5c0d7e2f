"""What Spark's processes load before they see a row."""

from __future__ import annotations

import subprocess
import sys


def test_planning_a_query_loads_no_kernels():
    check = "import sys, tailrace.spark.source; sys.exit('tailrace.kernels.library' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
