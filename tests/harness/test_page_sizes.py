"""The largest pages: thirty methods with twenty seeds, and a day at 5 kHz. Small, and soon to be seen."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from device_agents.protocol import EpochMarker, Phase
from emulator.runs.batch import plan, play, start
from emulator.runs.result import EMULATION_FILE, EmulationRecord
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TrainerSection
from harness.evidence.capture import MARKERS_FILE, DeviceFacts, write_capture
from harness.evidence.clock_fit import ClockFit
from harness.outputs import write_outputs
from joulefleet.records import read_record, write_record
from joulefleet.runstore import Journal, RunStore
from tests.conftest import FULL_COUNTS
from tests.harness.browser import browser, console_errors, open_page
from tests.harness.long_recording import SPIKE_A, long_recording
from tests.power.synthetic import START_NS

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(7200)]

MOST_BYTES, MOST_S = 5e6, 2.0
METHODS = (
    *("fedavg", "fedprox", "afl", "autofl", "cpow_d", "eafl", "energy_budget", "energy_oracle"),
    *("refl_oracle", "fed_cbs", "fedmarl", "fedrank", "fedrank_frozen", "fedrank_literal", "fedrank_minus_i"),
    *("fedrank_minus_ip", "fedrank_minus_p", "fedrank_plus", "fedzero", "frugal", "harmony_like", "no_probe"),
    *("oort", "power_of_choice", "random_by_size", "refl", "rpow_d", "speed_oracle", "tifl"),
    "fedrank_from_oort",
)
SEEN = """
const done = arguments[0];
requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() / 1000)));
"""
"""Seconds from asking for the page until it stands on the screen, its charts drawn."""


def emulations(root: Path, methods: int, seeds: int, rounds: int) -> Path:
    """One seed of each method is played; the others have its rounds, what curves show a little off."""
    scenario = Scenario(
        name="many",
        fleet=FleetSection(devices=100, speed_spread=0.3),
        protocol=ProtocolSection(rounds=rounds, k=5, candidates=10),
        trainer=TrainerSection(kind="surrogate"),
    )
    index = plan(scenario, METHODS[:methods], range(seeds))
    rng = np.random.default_rng(1)
    with start(root, index, "") as run:
        play(run, plan(scenario, METHODS[:methods], [0]))
        for planned in index.planned:
            folder = run.path / planned.folder
            if not folder.exists():
                shutil.copytree(run.path / f"{planned.folder.rpartition('_s')[0]}_s0", folder)
                _another_seed(folder, planned.seed, rng)
        play(run, index)
    return run.path


def _another_seed(folder: Path, seed: int, rng: np.random.Generator) -> None:
    record = read_record(folder / EMULATION_FILE, EmulationRecord)
    write_record(folder / EMULATION_FILE, record.model_copy(update={"seed": seed}), replace=True)
    path = folder / "rounds.parquet"
    table = pq.read_table(path)
    for i, name in enumerate(table.column_names):
        if name in ("test_accuracy", "reward", "energy_j_honest"):
            values = table[name].to_numpy() * rng.uniform(0.95, 1.0, len(table))
            table = table.set_column(
                i, table.schema.field(name), pa.array(values, table.schema.field(name).type)
            )
    pq.write_table(table, path)


def recorded(root: Path, seconds: int) -> Path:
    """One job whose recording is that long, ten epochs in it."""
    with RunStore(root).create("day", kind="bench") as run:
        folder = run.path / "jobs" / "0001_board_softmax_rep1"
        recording = long_recording(folder, seconds)
        edges_s = np.linspace(0.05 * seconds, 0.95 * seconds, 11)
        with Journal(folder / MARKERS_FILE) as journal:
            for i, (begins, ends) in enumerate(pairwise(edges_s)):
                for edge, at_s in (("start", begins), ("end", ends - 0.5)):
                    marker = EpochMarker(
                        kind=Phase.EPOCH, edge=edge, epoch=i + 1, seq=2 * i + (edge == "end"),
                        t_dev_ns=START_NS + round(at_s * 1e9),
                    )  # fmt: skip
                    journal.append(marker.model_dump(mode="json"))
        clock = ClockFit(offset_ns=0, reference_ns=0, residual_s=0.0, sync_uncertainty_s=1e-4, method="ping")
        device = DeviceFacts(name="board", transport="ssh")
        write_capture(
            folder, capture_id="day", device=device, workload="softmax", samples=1, batch_size=1, clock=clock
        )
        assert recording.record.n_samples == seconds * 5_000
    return run.path


def shown(
    run: Path,
    require_program: Callable[[str, str], str],
    record_property: Callable[[str, object], None],
) -> str:
    """Make the page and look at it; its text."""
    began_s = time.monotonic()
    page, *_ = write_outputs(run)
    made_s, size = time.monotonic() - began_s, page.stat().st_size
    programs = require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    with browser(*programs) as driver:
        open_page(driver, page)  # the program itself has to come from the disk once
        open_page(driver, page)
        seen_s = float(driver.execute_async_script(SEEN))
        assert int(driver.execute_script("return document.documentElement.dataset.drawn")) >= 1
        assert console_errors(driver) == []
    record_property("page_bytes", size)
    record_property("made_s", round(made_s, 1))
    record_property("seen_after_s", round(seen_s, 2))
    assert size < MOST_BYTES
    # Of a machine that does something else besides, the time says nothing.
    assert seen_s < (MOST_S if FULL_COUNTS else 30)
    return page.read_text(encoding="utf-8")


def test_a_page_of_many_methods_and_seeds(
    tmp_path: Path,
    require_program: Callable[[str, str], str],
    record_property: Callable[[str, object], None],
    campaign_count: Callable[[int, int], int],
) -> None:
    methods, seeds = campaign_count(4, len(METHODS)), campaign_count(2, 20)
    text = shown(
        emulations(tmp_path, methods, seeds, campaign_count(5, 200)), require_program, record_property
    )
    for method in METHODS[:methods]:
        assert f"{method}_s{seeds - 1}" in text or method in text
    assert f"seed {seeds - 1}" in text


def test_a_page_of_a_day_at_5_khz(
    tmp_path: Path,
    require_program: Callable[[str, str], str],
    record_property: Callable[[str, object], None],
    campaign_count: Callable[[int, int], int],
) -> None:
    text = shown(recorded(tmp_path, campaign_count(60, 86_400)), require_program, record_property)
    assert f"{SPIKE_A * 4.0:g}" in text  # the one sample that no page may lose
