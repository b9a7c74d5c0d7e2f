"""Helm's own library and the schemas of Kubernetes, in a process of their own.

`python kubernetes.py COMMAND` reads JSON and prints JSON; the packages of `kubernetes.lock` are on its path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

#: What it is installed from, with the SHA-256 of each file, in pip's form; written by `make lock`.
_REQUIREMENTS = Path(__file__).with_suffix(".lock")


def lint(chart: Path, values: Mapping[str, Any] | None = None) -> list[str]:
    """What `helm lint` has against a chart; remarks are left out."""
    report = _ask("lint", {"chart": str(chart), "values": values or {}})
    found = [message["error"] for message in report["messages"] if message["severity"] > 1]
    return found + report["errors"]


def rendered(chart: Path, values: Mapping[str, Any] | None = None) -> dict[str, str]:
    """What `helm template tailrace CHART --namespace tailrace` makes: the text of each template's file.

    Raises:
        RuntimeError: the chart refuses the values.
    """
    found: dict[str, str] = _ask("render", {"chart": str(chart), "values": values or {}})
    return {Path(name).name: text for name, text in sorted(found.items()) if text.strip()}


def wrong(objects: list[dict[str, Any]], versions: Sequence[str]) -> list[str]:
    """What the schemas of versions of Kubernetes have against objects; fields that they do not know, too."""
    found: list[str] = _ask("validate", {"objects": objects, "versions": versions})
    return found


def _ask(command: str, given: Mapping[str, Any]) -> Any:
    from tests.support.packages import packages_of  # not there in the process that is asked

    done = subprocess.run(
        [sys.executable, __file__, command],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": str(packages_of(_REQUIREMENTS))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _answer(command: str, given: Mapping[str, Any]) -> Any:
    """In the process of its own."""
    if command == "validate":
        import kubernetes_validate

        found = []
        for version, item in product(given["versions"], given["objects"]):
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{version} {item.get('kind')}: {error.message} at {list(error.path)}")
        return found
    import helm_python

    if command == "lint":
        return helm_python.lint(given["chart"], given["values"], strict=True, kube_version="v1.30.0")
    with helm_python.Chart.load(given["chart"]) as chart:
        chart.validate_schema(given["values"])
        return chart.render(given["values"], name="tailrace", namespace="tailrace")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answer(sys.argv[1], json.load(sys.stdin))))
