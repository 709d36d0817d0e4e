"""A data set of one's own as a package brings it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

from emulator.runs.result import load_result
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
HOW_TO = PAGE[PAGE.index("### A data set for a built-in task") : PAGE.index("## Partitions")]


def test_a_data_set_of_another_package_is_found_and_trained_on(tmp_path: Path) -> None:
    """The page's own words, as a package that lies on the path."""
    (program,) = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    points, task = re.findall(r"```toml \w+\n(.*?)```", HOW_TO, re.DOTALL)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "data.py").write_text(program)
    about = tmp_path / "my_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    ((group, named),) = tomllib.loads(points)["project"]["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in named.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    protocol = "[protocol]\nrounds = 2\nk = 2\n"
    (tmp_path / "own.toml").write_text(f'name = "own"\n{task}[fleet]\ndevices = 10\n{protocol}')
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (500, 1, 8, 8), np.uint8)
    np.savez(tmp_path / "street-digits.npz", images=images, labels=rng.integers(0, 10, 500))
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    environment = {**os.environ, "PYTHONPATH": path, "JOULEFLEET_DATA": str(tmp_path)}

    def joulefleet(*arguments: str) -> str:
        command = [sys.executable, "-m", "harness", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "my-package" in joulefleet("list", "data")
    joulefleet("emulate", "own.toml")
    (folder,) = (tmp_path / "emulations").glob("*/fedavg_s0")
    record = load_result(folder).record
    assert record.facts["data"]["name"] == "street-digits"
    assert record.facts["partition"]["samples"] == 400
    assert record.rounds == 2
