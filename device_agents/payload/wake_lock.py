"""Termux's wake lock: without it Android freezes the agent when the screen is off.

The lock is taken for the agent's life and released on every way out. A killed agent cannot release anything,
so a small process of its own waits for the agent's end and does it. Elsewhere than on Termux nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

COMMAND_TIMEOUT_S = 10.0


@contextlib.contextmanager
def wake_lock() -> Iterator[bool]:
    """Hold the lock. Yields whether there is one."""
    take, release = shutil.which("termux-wake-lock"), shutil.which("termux-wake-unlock")
    if take is None or release is None:
        yield False
        return
    # The watcher first: whatever happens from here on, someone releases the lock.
    watcher = subprocess.Popen(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "device_agents.payload.wake_lock", release],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,  # a signal to the agent's group must not take the watcher along
    )
    try:
        yield run_command(take)
    finally:
        watcher.communicate()


def run_command(path: str) -> bool:
    """Run a Termux command; a phone that refuses is no reason to stop."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program without arguments
            [path],
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def main() -> None:
    """The watcher: wait until the agent has gone, then release the lock."""
    while os.read(0, 1):
        pass
    run_command(sys.argv[1])


if __name__ == "__main__":
    main()
