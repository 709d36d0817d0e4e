"""`docs/tutorial-week.md`: its scenario is written, its commands and Python are run as typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emulator
from harness.cli import run as joulefleet
from tests.conftest import REPOSITORY
from tests.emulator.test_resume import logs
from traces import NetworkKind, TraceSet

PAGE = (REPOSITORY / "docs" / "tutorial-week.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FILES = ("traces/extrasensory_phone_state.csv.gz", "network/pensieve_hsdpa_fcc_mbps.csv.gz")


def test_the_page_is_run_from_top_to_bottom(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    real_file: Callable[[str], Path],
) -> None:
    for name in FILES:
        (tmp_path / Path(name).name).symlink_to(real_file(name))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for kind, text in BLOCKS:
        if kind == "toml":
            Path("week.toml").write_text(text, encoding="utf-8")
        elif kind == "python":
            (names["run"],) = Path("emulations").iterdir()
            exec(compile(text, "docs/tutorial-week.md", "exec"), names)
        else:
            assert kind == "sh"
            for line in text.splitlines():
                newest = next(Path("emulations").glob("*"), "")
                words = shlex.split(line.replace("emulations/RUN", str(newest)), comments=True)
                assert words[0] == "joulefleet"
                assert joulefleet(words[1:]) == 0, line
    said = capsys.readouterr().out
    assert "network     269 recordings [imported] given to users by the seed" in said
    assert {NetworkKind.ETHERNET, NetworkKind.CELLULAR_3G} == {
        NetworkKind(trace.network.kind[0]) for trace in TraceSet("networks") if trace.network is not None
    }
    clients = names["clients"]
    per_device = clients.groupby("device")["download_s"].nunique()
    assert np.median(per_device[per_device.index.isin(names["slowest"].index)]) > 1, "downloads move"
    assert clients["upload_s"].nunique() <= 34, "nobody recorded uploads: one for each profile"
    as_one_set(next(names["run"].glob("oort_s0")))


def as_one_set(played: Path) -> None:
    """The last promise of the page: the merged set gives the same numbers for seed 0."""
    text = Path("week.toml").read_text(encoding="utf-8")
    text = re.sub(r"\[fleet\.network\]\n.*\n", "", text).replace('"people"', '"both"')
    text = text.replace("devices = 100", 'devices = 100\nnetwork = "trace"')
    Path("merged.toml").write_text(text + '[selector]\nname = "oort"\n', encoding="utf-8")
    assert logs(emulator.run("merged.toml", seed=0, out=Path("merged")).path) == logs(played)


def test_everything_on_the_page_is_a_block_that_is_run() -> None:
    assert [kind for kind, _ in BLOCKS] == ["sh", "toml", "sh", "python", "sh"]
