"""Crash points: whom they kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from tailrace.failpoints import VARIABLE

#: A driver: starts a process called `java` and comes to a crash point twice.
DRIVER = """
import subprocess, sys
from tailrace.failpoints import failpoint
java = subprocess.Popen([sys.argv[1], "60"])
failpoint("sink.table")
print(java.wait(10))
failpoint("sink.table")
"""


def test_a_driver_loses_its_jvm_once_and_goes_on(tmp_path):
    java = tmp_path / "java"
    shutil.copy("/bin/sleep", java)
    env = {**os.environ, VARIABLE: f"sink.table=jvm@{tmp_path / 'token'}"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(java)], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(-signal.SIGKILL)), done.stderr


#: A driver, and a process beside its Java process, as one that a fork server has forked.
FORK = """
import os, subprocess, sys
from tailrace.failpoints import failpoint
java = subprocess.Popen([sys.argv[1], "60"])
if (fork := os.fork()) == 0:
    failpoint("sink.table")
print(java.wait(10), os.waitpid(fork, os.WNOHANG)[0])
os.kill(fork, 9)
"""


def test_a_fork_beside_the_jvm_kills_it_and_waits_for_its_own_end(tmp_path):
    java = tmp_path / "java"
    shutil.copy("/bin/sleep", java)
    env = {**os.environ, VARIABLE: f"sink.table=jvm@{tmp_path / 'token'}"}
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(java)], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, [str(-signal.SIGKILL), "0"]), done.stderr
