"""The example of a task of one's own, and a data set of one's own as a package brings it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from emulator.compare.load import compare_emulations
from emulator.emulation import load_result
from tests.conftest import REPOSITORY

OWN_DATA = """
from emulator.data.model import Split, image_data_set
from emulator.data.embedded import digits

def inverted(source):
    found = digits(source)
    parts = [Split((255 - split.x * 255).astype("u1"), split.y)
             for split in (found.train, found.validation, found.test)]
    return image_data_set("inverted", 10, *parts, note="white on black")
"""


def test_the_example_of_an_own_task_is_short_learns_and_can_be_compared(tmp_path: Path) -> None:
    example = REPOSITORY / "examples" / "own_task.py"
    lines = [line for line in example.read_text().splitlines() if line.strip()]
    assert len(lines) < 40
    done = subprocess.run(
        [sys.executable, str(example), str(tmp_path)], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    accuracies = [float(found) for found in re.findall(r"accuracy ([\d.]+)", done.stdout)]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.95
    # By a process that knows neither the model nor the data.
    assert set(compare_emulations([tmp_path]).comparison.cells) == {"fedavg", "oort"}


def test_a_data_set_of_another_package_is_found_and_trained_on(tmp_path: Path) -> None:
    (tmp_path / "my_data.py").write_text(OWN_DATA)
    about = tmp_path / "my_data-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-data\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fedjoule.data_sets]\ninverted = my_data:inverted\n")
    (tmp_path / "own.toml").write_text(
        'name = "own"\n[fleet]\ndevices = 10\n[task]\nname = "digits-mlp"\ndata = "inverted"\n'
        "[protocol]\nrounds = 2\nk = 2\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}

    def fedjoule(*arguments: str) -> str:
        command = [sys.executable, "-m", "harness", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert re.search(r"inverted .*my-data", fedjoule("list", "data"))
    fedjoule("emulate", "own.toml")
    (folder,) = (tmp_path / "emulations").glob("*/fedavg_s0")
    record = load_result(folder).record
    assert record.facts["data"]["name"] == "inverted"
    assert record.rounds == 2
