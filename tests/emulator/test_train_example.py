"""The example of a task of one's own."""

import re
import subprocess
import sys

from tests.conftest import REPOSITORY


def test_the_example_of_an_own_task_is_short_runs_and_learns() -> None:
    example = REPOSITORY / "examples" / "own_task.py"
    lines = [line for line in example.read_text().splitlines() if line.strip()]
    assert len(lines) < 30
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    accuracies = [float(found) for found in re.findall(r"accuracy ([\d.]+)", done.stdout)]
    assert len(accuracies) == 5
    assert accuracies[-1] > 0.95
