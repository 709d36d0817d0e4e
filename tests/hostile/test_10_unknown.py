"""Class 10: what failed on a bench makes no method look cheap: in tables, comparisons, exports and pages."""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emulator.round.accounting import honest_time_s, round_costs
from emulator.round.outcome import COSTS, ClientCost, Fate, Reports, RoundOutcome
from emulator.runs.result import EMULATION_FILE, EmulationRecord, load_result
from emulator.runs.tables import RunLog
from emulator.scenario.model import ProtocolSection, Scenario, SelectorSection
from harness.cli import run as joulefleet
from harness.cli.bench.federate import _data, _lines, _round_energy
from harness.federate.files import read_federate_files
from harness.report.bench.page import rounds_section
from harness.rounds.record import FEDERATION
from joulefleet.provenance import Origin
from joulefleet.records import write_record
from joulefleet.runstore import RunStore
from tests.conftest import REPOSITORY

FACTS = {"energy": "gross", "cost_origin": "measured", "trainer": "devices (torch)", "played": "on the bench"}
DEVICES = 3
NO = float("nan")
EACH_J = 2.0  # of each of download, train and upload
EACH_S = 5.0


def outcome(number: int, joules: Sequence[float], accuracy: float) -> RoundOutcome:
    """Devices that take so many joules for each phase but the probe and the wait; NaN for one that failed."""
    each_j = np.array(joules)
    each_s = np.where(np.isnan(each_j), NO, EACH_S)
    nothing = 0 * each_j
    cost = ClientCost(each_s, nothing, nothing, each_s, each_s, each_j, nothing, nothing, each_j, each_j)
    chosen = np.ones(len(each_j), bool)
    costs = round_costs(cost, chosen, honest_time_s(cost, chosen, probed=False), probed=False)
    known_s = honest_time_s(cost.known(), chosen, probed=False)
    blank = np.full(len(each_j), NO)
    return RoundOutcome(
        round=number,
        start_ns=number * 10**11,
        duration_ns=10**11,
        clients=np.arange(len(each_j)),
        chosen=chosen,
        fates=tuple(Fate.LEFT if math.isnan(j) else Fate.FINISHED for j in joules),
        cost=cost,
        reports=Reports(*(blank for _ in range(7))),
        costs=costs,
        accuracy=accuracy,
        accuracy_gain=0.1,
        reward=1.0 if np.isfinite(each_j).all() else NO,
        known_costs=round_costs(cost.known(), chosen, known_s, probed=False),
    )


def federated(root: Path, method: str, seed: int, rounds: Sequence[Sequence[float]]) -> Path:
    scenario = Scenario(
        name="bench",
        selector=SelectorSection(name=method),
        protocol=ProtocolSection(rounds=len(rounds), k=DEVICES, candidates=DEVICES),
    )
    with RunStore(root).create(f"{method}-{seed}", kind=FEDERATION) as run:
        (run.path / "rounds").mkdir()
        with RunLog(run, Origin.MEASURED, training="devices (torch)", on_bench=True) as log:
            for number, joules in enumerate(rounds, start=1):
                log.append(
                    outcome(number, joules, 0.5),
                    eligible=DEVICES,
                    loss=1.0,
                    test_accuracy=0.5,
                    overhead_s=0.0,
                    metrics={},
                )
        facts = {**FACTS, "selector": method}
        record = EmulationRecord(
            scenario=scenario, seed=seed, facts=facts, rounds=len(rounds), test_accuracy=0.5
        )
        write_record(run.path / EMULATION_FILE, record)
    return run.path


WHOLE = [[EACH_J] * DEVICES] * 2
LOSING = [[EACH_J] * DEVICES, [EACH_J / 10, NO, NO]]
"""Two devices fail in the second round, which leaves a cheap one."""


@pytest.fixture
def rivals(tmp_path: Path) -> list[str]:
    """FedAvg, of which everything is known, and Oort, which loses devices with one of three seeds."""
    paths = [federated(tmp_path, "fedavg", seed, WHOLE) for seed in range(3)]
    paths += [federated(tmp_path, "oort", seed, LOSING if seed == 1 else WHOLE) for seed in range(3)]
    return [str(path) for path in paths]


def test_a_table_says_null_and_keeps_what_is_known_apart(tmp_path: Path) -> None:
    path = federated(tmp_path, "oort", 0, LOSING)
    clients = pq.read_table(path / "clients.parquet")
    for name in COSTS:
        if name.startswith(("download", "train", "upload")):
            assert clients.column(name).is_null().to_pylist() == [False] * 4 + [True] * 2, name
    first, second = pq.read_table(path / "rounds.parquet").to_pylist()
    assert (first["energy_j_honest"], first["n_unknown"]) == (pytest.approx(18.0), 0)
    assert [second[f"energy_j_{a}"] for a in ("honest", "selected_only", "free")] == [None] * 3
    assert [second[f"time_s_{a}"] for a in ("honest", "selected_only", "free")] == [None] * 3
    assert (second["n_unknown"], second["reward"], second["energy_j"]) == (2, None, None)
    assert second["known_energy_j_honest"] == pytest.approx(0.6)
    assert second["known_time_s_honest"] == pytest.approx(15.0)


def test_a_lower_bound_wins_no_ranking_and_no_test(
    rivals: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", *rivals, "--target", "0.4", "--metric", "energy_j", "--metric", "accuracy"]
    assert joulefleet(command) == 0
    text = capsys.readouterr().out
    table = text.split("energy, without waiting")[1].splitlines()
    assert table[2].startswith("fedavg")
    assert table[2].split()[1:5] == ["36", "[36,", "36]", "3"]
    lost = table[3].split()
    assert lost[0] == "oort"
    assert lost[1] == ">="
    assert "3, 1 unknown" in table[3]
    assert " - " in table[3], "no rank"
    assert "oort: of 2 participations not every cost is known" in text
    assert joulefleet([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    cell = found["methods"]["oort"]["energy_j"]
    assert (cell["unknown"], cell["rank"]) == (1, None)
    assert cell["value"]["mean"] == pytest.approx((36.0 + 36.0 + 18.6) / 3)
    assert [c["difference"]["mean"] for c in cell["contrasts"]] == [None]
    assert found["methods"]["fedavg"]["energy_j"]["rank"] == 1.0
    assert found["methods"]["oort"]["accuracy"]["rank"] == 1.5, "accuracies are known"
    assert found["finished"] == {"fedavg": 1.0, "oort": pytest.approx(16 / 18)}
    assert joulefleet([*command, "--format", "csv"]) == 0
    rows = [
        row for row in csv.DictReader(capsys.readouterr().out.splitlines()) if row["metric"] == "energy_j"
    ]
    assert {row["method"]: (row["unknown"], row["rank"]) for row in rows} == {
        "fedavg": ("0", "1.0"),
        "oort": ("1", ""),
    }


def test_a_round_of_which_nothing_is_known_is_not_at_least_nothing(tmp_path: Path) -> None:
    path = federated(tmp_path, "fedavg", 0, [[NO] * DEVICES, [EACH_J, NO, EACH_J]])
    section = rounds_section(path)
    nothing, partly = ([str(cell) for cell in row] for row in section.tables[0].rows)
    assert nothing[7:11] == ["not known"] * 4
    assert nothing[4] == "3 of 3"
    assert partly[7:9] == [">= 15 s", ">= 12 J"]
    assert "lower bound" in section.small_print
    values = section.charts[-1].as_data()["data"]
    assert values[1] == [None, None], "a hole, not a cheap round"


def test_the_command_marks_what_it_adds_up(tmp_path: Path) -> None:
    path = federated(tmp_path, "oort", 0, LOSING)
    settings = tmp_path / "federate.toml"
    settings.write_text('backend = "torch"\ndevices = ["pi", "phone", "far", "left"]\n')
    inventory = REPOSITORY / "examples" / "devices.toml"
    files = read_federate_files("quick", inventory, settings, selector="oort", rounds=2)
    said = _data(files, load_result(path))
    assert said["energy_j"] == dict.fromkeys(("honest", "selected_only", "free"))
    assert said["known_energy_j"]["honest"] == pytest.approx(18.6)
    assert (said["unknown_parts"], said["parts"], said["finished"], said["asked"]) == (2, 6, 4, 6)
    lines = _lines(files, path, said)
    assert "honest: >= 30 s, >= 18.6 J in all rounds, 2 of 6 unknown" in lines
    assert "4 of 6 participations that were to send an update did" in lines
    json.dumps(said, allow_nan=False)
    assert _round_energy(outcome(2, LOSING[1], 0.5)) == ">= 0.6 J without waiting, 2 of 3 unknown"
    assert _round_energy(outcome(1, LOSING[0], 0.5)) == "18 J without waiting"


def test_an_exported_table_has_a_hole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = federated(tmp_path, "oort", 0, LOSING)
    assert joulefleet(["export", str(path), "--format", "csv", "--out", str(tmp_path / "out")]) == 0, (
        capsys.readouterr().err
    )
    (file,) = (tmp_path / "out").rglob("*clients*.csv")
    rows = list(csv.DictReader(line for line in file.read_text().splitlines() if not line.startswith("#")))
    assert [row["train_j"] for row in rows][-2:] == ["", ""]


def test_a_table_whose_holes_nobody_declared_is_refused(
    rivals: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Null costs are believed only where the round says of how many they are missing."""
    file = Path(rivals[4], "rounds.parquet")
    table = pq.read_table(file)
    column = table.column_names.index("n_unknown")
    nobody = pa.array([0] * len(table), pa.int32())
    pq.write_table(table.set_column(column, table.schema.field(column), nobody), file)
    assert joulefleet(["compare", *rivals]) == 6
    assert "not numbers" in capsys.readouterr().err
