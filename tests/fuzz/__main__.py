"""Fuzzes what reads bytes from the server: `python -m tests.fuzz`, or `make fuzz`.

    parent ── starts ──> child: one subject, seed after seed, each written down before it is tried
       └ watches: the child's death, a case that takes too long, memory beyond the limit, any error not ours

A case is its subject and its seed. What was found is printed with the command that tries it again:

    python -m tests.fuzz --subject row_events --seed 123456 --cases 1
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: The longest a case may take, and the memory it may have beyond what the process has to begin with.
HANG_S = 20
MEMORY_BYTES = 3 << 30
_STATUS = struct.Struct("<QQQ")  # seed of the case that runs, cases done, of these refused


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 if nothing was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz what reads the server's bytes."
    )
    seconds = float(os.environ.get("FUZZ_SECONDS", "3600"))
    parser.add_argument("--seconds", type=float, default=seconds, help="time for all subjects together")
    parser.add_argument("--seed", type=int, help="the first case's seed; a new one each time if left out")
    parser.add_argument("--subject", help="only this one")
    parser.add_argument("--cases", type=int, default=1 << 62, help="at most so many of each subject")
    parser.add_argument("--child", metavar="STATUS", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        _run(given.subject, given.seed, given.seconds, given.cases, Path(given.child))
        return 0
    from tests.fuzz.subjects import SUBJECTS

    names = [given.subject] if given.subject else list(SUBJECTS)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.seconds:.0f} s", flush=True)
    found = [name for name in names if not _watch(name, seed, given.seconds / len(names), given.cases)]
    return 1 if found else 0


def _run(name: str, seed: int, seconds: float, cases: int, status: Path) -> None:
    """The child: case after case."""
    from tests.fuzz.subjects import SUBJECTS, run_case

    faulthandler.enable()
    if name in SUBJECTS:
        run_case(name, 0)  # kernels are loaded before memory counts
    _limit_memory()
    with status.open("r+b") as file, mmap.mmap(file.fileno(), _STATUS.size) as shared:
        end = time.monotonic() + seconds
        done = refused = 0
        while done < cases and (time.monotonic() < end or not done):
            _STATUS.pack_into(shared, 0, seed + done, done, refused)
            refused += run_case(name, seed + done)
            done += 1
        _STATUS.pack_into(shared, 0, seed + done, done, refused)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _watch(name: str, seed: int, seconds: float, cases: int) -> bool:
    """Run a subject in a child; whether all went well."""
    with tempfile.TemporaryDirectory() as directory:
        status, errors = Path(directory) / "status", Path(directory) / "errors"
        status.write_bytes(bytes(_STATUS.size))
        command = [sys.executable, "-m", "tests.fuzz", "--subject", name, "--seed", str(seed)]
        command += ["--seconds", str(seconds), "--cases", str(cases), "--child", str(status)]
        with errors.open("wb") as stream:
            child = subprocess.Popen(command, stderr=stream)
            hung = _wait(child, status)
        at, done, refused = _STATUS.unpack(status.read_bytes())
        if child.returncode == 0:
            print(f"{name}: {done} cases, {refused} refused, {done - refused} decoded", flush=True)
            return True
        ending = f"exit code {child.returncode}"
        if child.returncode < 0:
            ending = f"killed by {signal.Signals(-child.returncode).name}"
        if hung:
            ending = f"no end within {HANG_S} s"
        print(f"{name}: FOUND after {done} cases: {ending}", flush=True)
        print(errors.read_text(errors="replace")[-4000:], flush=True)
        print(f"again: python -m tests.fuzz --subject {name} --seed {at} --cases 1", flush=True)
        return False


def _wait(child: subprocess.Popen[bytes], status: Path) -> bool:
    """Wait for the child's end; kill it when its case does not end, and say so."""
    last, since = (0, 0, 0), time.monotonic()
    while True:
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            at = _STATUS.unpack(status.read_bytes())
            if at != last:
                last, since = at, time.monotonic()
            # before the first case the kernels are loaded, or compiled
            elif time.monotonic() - since > (HANG_S if any(at) else 10 * HANG_S):
                child.send_signal(signal.SIGABRT)  # faulthandler says where it was
                child.wait()
                return True
        else:
            return False


if __name__ == "__main__":
    raise SystemExit(main())
