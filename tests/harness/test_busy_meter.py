"""`bench run --wait` on a meter that somebody else holds, and the live table of rounds."""

import json
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.bench_run.run import Pace, read_bench_files, run_bench
from harness.cli.bench import live
from harness.inventory import load_inventory
from joulefleet.errors import JoulefleetError
from power import MeterConfig, open_meter
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from tests.harness.local_bench import FAST

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

HELD_S = 3.0
PLAN = """
name = "busy"
models = ["softmax"]
backends = ["numpy"]
samples = 64
local_epochs = 2
[repetitions]
count = 1
"""


def written(folder: Path, port: str, attempts: int) -> tuple[Path, Path]:
    sections = "".join(f"[{name}]\n{text}\n" for name, text in FAST.items() if name != "retry")
    (folder / "plan.toml").write_text(f"{PLAN}{sections}[retry]\nattempts = {attempts}\nwait_s = 0.1\n")
    (folder / "devices.toml").write_text(
        f'[devices.here]\ntransport = "local"\npython = "{sys.executable}"\nstate = "{folder / "state"}"\n'
        f'[devices.here.meter]\nkind = "monsoon-lvpm"\nport = "{port}"\n'
        "voltage_v = 4.0\nvoltage_max_v = 4.2\ncurrent_limit_a = 3.0\n"
    )
    return folder / "plan.toml", folder / "devices.toml"


def hold(config: MeterConfig, seconds: float, held: threading.Event) -> None:
    with open_meter(config):
        held.set()
        time.sleep(seconds)


@pytest.mark.parametrize("wait", [True, False])
def test_a_meter_in_use_is_waited_for_or_fails_the_run(tmp_path: Path, wait: bool) -> None:
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", noise_a=0.001, serial="9")
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        plan, inventory = written(tmp_path, instrument.address, attempts=4 if wait else 1)
        config = load_inventory(inventory).meter_of("here")
        assert config is not None
        held = threading.Event()
        other = threading.Thread(target=hold, args=(config, HELD_S, held), daemon=True)
        other.start()
        assert held.wait(30)
        files = read_bench_files(plan, inventory)
        if not wait:
            with pytest.raises(JoulefleetError, match="in use by another process") as refused:
                run_bench(files, tmp_path / "runs")
            assert "--resume" in refused.value.hint
            assert "--wait" in refused.value.hint
            other.join()
            return
        done = run_bench(files, tmp_path / "runs", pace=Pace(wait=True))
        other.join()
    assert (len(done.outcomes.finished), done.left) == (1, 0)
    events = [json.loads(line) for line in (done.path / "journal.jsonl").read_text().splitlines()]
    waiting = [event for event in events if event["event"] == "waiting"]
    assert len(waiting) == 1  # said once, however long it lasts
    assert "in use by another process" in waiting[0]["note"]
    assert not list((done.path / "failed").glob("*busy*"))


def test_rounds_have_a_live_table_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, inventory = written(tmp_path, "/dev/null", attempts=1)
    files = read_bench_files(plan, inventory)
    drawn: list[str] = []
    real = live.table

    def seen(devices: object, title: str, epochs: int) -> object:
        drawn.append(f"{title}: {devices}")
        return real(devices, title, epochs)  # type: ignore[arg-type]

    monkeypatch.setattr(live, "table", seen)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with live.shown(files, 2, 8) as (_, listener, board):
        board.set("here", job="0001", stage="round", power_w=1.25)
        listener("round", "0003", {"candidates": ["here"]})
        listener("stage", "0001", {"stage": "idle_before"})
        time.sleep(3 * live.REFRESH_S)
        listener("round", "0004_M2_K1_rep2", {})
    assert any(text.startswith("round 4 of 8: M2 K1 rep2") for text in drawn)
    assert any(text.startswith("round 3 of 8: ") and "power_w=1.25" in text for text in drawn)
    assert "idle_before" not in capsys.readouterr().err  # in the table, not as a line
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    drawn.clear()
    with live.shown(files, 2, 8) as (_, listener, _board):
        listener("stage", "0001", {"stage": "idle_before"})
    assert "idle_before" in capsys.readouterr().err
    assert not drawn
