"""A federated run on disk with known seconds and watts, written by the run's own writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emulator.runs.result import EMULATION_FILE, EmulationRecord
from emulator.scenario.model import Scenario
from harness.evidence.capture import Background, Capture, DeviceFacts
from harness.rounds.record import FEDERATION, FederatedRoundRecord, PartRecord, federated_file
from joulefleet.records import write_record
from joulefleet.runstore import RunStore
from tests.harness.profile_captures import Stretch, one_round, write


def board(name: str) -> DeviceFacts:
    return DeviceFacts(name=name, transport="ssh")


class StoredFederation:
    """Rounds are added one by one."""

    def __init__(self, root: Path) -> None:
        run = RunStore(root).create("loop", kind=FEDERATION)
        self.path = run.path
        (self.path / "rounds").mkdir()
        write_record(
            self.path / EMULATION_FILE, EmulationRecord(scenario=Scenario(name="loop"), seed=0, facts={})
        )
        run.__exit__(None, None, None)

    def add(self, number: int, parts: list[PartRecord], *, probed: bool = True) -> None:
        record = FederatedRoundRecord(number=number, probed=probed, parts=tuple(parts))
        write_record(federated_file(self.path, number), record)

    def part(
        self, number: int, device: str, stretches: list[Stretch], *, chosen: bool = True, **facts: Any
    ) -> PartRecord:
        """A device's part of a round; ``facts`` go to the capture, ``link_bps`` to the record."""
        link_bps = facts.pop("link_bps", None)
        job = f"{number:04d}_{device}_federate_rep{number}"
        capture = write(
            self.path / "jobs" / job, stretches,
            device=board(device), repetition=number, **({"local_epochs": 3} | facts),
        )  # fmt: skip
        return PartRecord(
            device=device, client=ord(device[0]) - ord("a"), job=job, epochs=3, chosen=chosen,
            capture_sha256=capture.record.sha256(), link_bps=link_bps,
        )  # fmt: skip


def stopped(first_s: float) -> list[Stretch]:
    """A round that ends after its first epoch: no upload."""
    return [s for s in one_round([first_s]) if s.phase is None or s.phase.value != "upload"]


def captures(folder: Path, device: str, epoch_s: float, levels: dict[Background, float]) -> list[Capture]:
    """Two repetitions of a round of three epochs, alone and beside loads that slow it down."""
    found = []
    for i in range(2):
        found.append(write(folder / f"{device}-{i}", one_round([epoch_s] * 3), device=board(device)))
        for background, slowdown in levels.items():
            # The load alone draws 1.8 W, the training 2.2 W more, for longer.
            stretches = one_round([epoch_s * slowdown] * 3, train_w=4.0, load_w=1.8)
            name = f"{device}-{background.name}-{i}"
            found.append(write(folder / name, stretches, device=board(device), background=background))
    return found
