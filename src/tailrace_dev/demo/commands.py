"""`tailrace demo`."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from tailrace.extras import require
from tailrace_dev.demo.products import PRODUCTS


@click.command(context_settings={"show_default": True})
@click.option(
    "--source", "product", type=click.Choice(PRODUCTS), default="mysql", help="The shop's database."
)
@click.option("--keep", is_flag=True, help="Leave server and pipeline running, and print how to stop them.")
@click.option(
    "--rows", type=click.IntRange(10_000), default=1_000_000, help="Approximate number of rows in the shop."
)
@click.option(
    "--seconds", type=click.FloatRange(0), default=10, help="How long to write changes after the snapshot."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tailrace-demo"),
    help="Directory for the pipeline file, tables and logs; that of an earlier demo is overwritten.",
)
def demo(product: str, keep: bool, rows: int, seconds: float, directory: Path) -> None:
    """Replicate a busy database into Delta tables, survive a kill on the way, and verify that both are equal.

    Exit code 1 if they are not.
    """
    require("delta", "the demo")
    from tailrace_dev.demo.run import Demo  # noqa: PLC0415
    from tailrace_dev.demo.screen import Screen  # noqa: PLC0415

    def interrupted(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    console = Console(highlight=False)
    try:
        equal = Demo(product, directory, rows, seconds, keep, Screen(console)).run()
    except KeyboardInterrupt:
        console.print(f"Stopped: no process of the demo is running. Its files are in {directory.absolute()}")
        raise
    if not equal:
        raise SystemExit(1)
