"""Tells others that a pipeline has ended with an error: by a command or a webhook (`pipeline.on-failure`).

Both receive the same JSON object, the command at its standard input, the webhook by POST:

    {"event": "failed", "pipeline": "shop", "host": "db1", "at": "2026-11-23T14:05:09.412Z",
     "code": "TR-8002", "table": null, "message": "...", "detail": "...", "hint": "..."}

The command is run without a shell, with the user's environment and `TAILRACE_PIPELINE` and `TAILRACE_CODE`.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import shlex
import ssl
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tailrace.config.secret import Secret
from tailrace.errors import TailraceError
from tailrace.sinks.bounded_http import send

#: How long the command or the webhook may take, seconds.
PATIENCE_S = 30.0


def tell_failure(
    on_failure: Secret, pipeline: str, error: TailraceError, tell: Callable[[str], None]
) -> None:
    """Run the command, or call the webhook.

    Args:
        on_failure: a command, or an http or https URL.
        pipeline: the pipeline's name.
        error: how the pipeline has ended.
        tell: tells the user that this did not work; the setting, which may be a secret, is not shown.
    """
    text = _report(pipeline, error)
    try:
        target = on_failure.resolve("`pipeline.on-failure`").strip()
        is_url = target.startswith(("http://", "https://"))
        problem = _post(target, text) if is_url else _run(target, text, pipeline, error)
    except TailraceError as unknown:
        problem = unknown.message
    if problem is not None:
        tell(f"`pipeline.on-failure` has not worked: {problem}")


def _report(pipeline: str, error: TailraceError) -> str:
    at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    return json.dumps(
        {
            "event": "failed",
            "pipeline": pipeline,
            "host": platform.node(),
            "at": at.replace("+00:00", "Z"),
            "table": error.table,
            **error.json_values(),
        }
    )


def _run(command: str, text: str, pipeline: str, error: TailraceError) -> str | None:
    """Run a command; what went wrong, None: nothing."""
    variables = {**os.environ, "TAILRACE_PIPELINE": pipeline, "TAILRACE_CODE": error.code or ""}
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command
            shlex.split(command),
            input=text,
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the command took longer than {PATIENCE_S:.0f} s"
    except (OSError, ValueError) as failure:
        return getattr(failure, "strerror", None) or str(failure)
    return f"the command ended with exit code {done.returncode}" if done.returncode else None


def _post(url: str, text: str) -> str | None:
    """Call a webhook; what went wrong, None: nothing."""
    headers = {"Content-Type": "application/json"}
    try:
        answer = send(url, text.encode(), headers, tls=ssl.create_default_context, timeout_s=PATIENCE_S)
    except (OSError, http.client.HTTPException, ValueError) as failure:
        return f"the webhook does not answer ({type(failure).__name__})"
    return None if 200 <= answer.status < 300 else f"the webhook answered {answer.status}"
