"""`tailrace demo`."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from tailrace.extras import require
from tailrace_dev.demo.products import PRODUCTS


@click.command()
@click.option(
    "--source",
    "product",
    type=click.Choice(PRODUCTS),
    default="mysql",
    show_default=True,
    help="The shop's database.",
)
@click.option("--keep", is_flag=True, help="Leave server and the pipeline running, and say how to stop them.")
@click.option(
    "--rows",
    type=click.IntRange(min=10_000),
    default=1_000_000,
    show_default=True,
    help="Rows of the shop, about.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=10,
    show_default=True,
    help="How long changes flow after the snapshot.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tailrace-demo"),
    show_default=True,
    help="Where pipeline file, tables and logs go; an earlier demo's is overwritten.",
)
def demo(product: str, keep: bool, rows: int, seconds: float, directory: Path) -> None:
    """Replicate a busy database into Delta tables, get killed on the way, and prove both equal.

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
        console.print(
            f"Stopped: nothing of the demo runs any more. What it wrote is in {directory.absolute()}"
        )
        raise
    if not equal:
        raise SystemExit(1)
