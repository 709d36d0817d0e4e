"""Profiles that travel: every column of the table, every file, and what an imported one may claim."""

import csv
from pathlib import Path

import pytest

from harness.profiles.exchange import COLUMNS, export_profiles, import_profiles
from harness.profiles.library import Stored
from joulefleet.errors import StorageError
from joulefleet.provenance import Origin, Provenance
from power import load_profile
from power.profile import DeviceProfile, save_profile
from power.profile.model import PhaseCost, Quantity, TransferCost
from tests.emulator.worlds import profile


def quantity(mean: float, half: float, **facts: object) -> Quantity:
    return Quantity.model_validate({"mean": mean, "half_width_95": half, "n": 4, "sd": 0.5, **facts})


def spread(name: str = "board") -> DeviceProfile:
    """Epochs of three sessions, all energies known; a probe of which only the gross energy is."""
    sessions = {"sessions": 3, "session_sd_from": "measured"}
    epoch = PhaseCost(
        duration_s=quantity(2.0, 0.25, session_sd=0.125, **sessions),
        gross_j=quantity(9.0, 0.5),
        net_j=quantity(7.0, 0.5),
        marginal_j=quantity(5.0, 0.75, session_sd=0.375, **sessions),
    )
    probe = PhaseCost(duration_s=quantity(3.0, 0.5), gross_j=quantity(11.0, 1.0), net_j=None, marginal_j=None)
    down = TransferCost(
        duration_s=Quantity(mean=0.5, factor_95=2.0), gross_j=Quantity(mean=0.7), net_j=Quantity(mean=0.6),
        marginal_j=Quantity(mean=0.4, factor_95=3.0), bytes=1000,
    )  # fmt: skip
    return profile(
        device=name, samples=600, probe=probe, epoch=epoch, download=down, upload=None, local_epochs=5
    )


def test_a_table_has_every_phase_of_every_profile(tmp_path: Path) -> None:
    table = tmp_path / "all.csv"
    assert export_profiles([spread(), spread("other")], table) == [table]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["device"], row["phase"]) for row in rows] == [
        (device, phase) for device in ("board", "other") for phase in ("probe", "epoch", "download")
    ]
    assert list(rows[0]) == list(COLUMNS)
    probe, epoch, down = (dict(row) for row in rows[:3])
    about = {
        "device": "board", "model": "mlp", "dataset": "digits", "backend": "numpy", "origin": "literature",
        "samples": "600", "batch_size": "32", "local_epochs": "5",
    }  # fmt: skip
    assert epoch == about | {
        "phase": "epoch", "duration_s": "2.0", "duration_half_width_95_s": "0.25", "duration_factor_95": "",
        "gross_j": "9.0", "net_j": "7.0", "marginal_j": "5.0", "marginal_half_width_95_j": "0.75",
        "marginal_factor_95": "", "n": "4", "sessions": "3", "session_sd_from": "measured",
        "duration_session_sd_s": "0.125", "marginal_session_sd_j": "0.375", "bytes": "",
    }  # fmt: skip
    unknown = (
        "net_j",
        "marginal_j",
        "marginal_half_width_95_j",
        "marginal_factor_95",
        "marginal_session_sd_j",
    )
    assert {probe[name] for name in unknown} == {""}
    assert (probe["duration_s"], probe["gross_j"], probe["duration_half_width_95_s"]) == (
        "3.0",
        "11.0",
        "0.5",
    )
    assert (down["duration_factor_95"], down["marginal_factor_95"], down["bytes"]) == ("2.0", "3.0", "1000")


def test_files_of_one_and_of_several(tmp_path: Path) -> None:
    one, other = spread(), spread("other")
    file = tmp_path / "own.json"
    assert export_profiles([other], file) == [file]
    assert load_profile(file).device == "other"
    for wrong in ([], [one, other]):
        with pytest.raises(StorageError, match=f"one file holds one profile, not {len(wrong)}"):
            export_profiles(wrong, tmp_path / "two.json")
    assert not (tmp_path / "two.json").exists()
    written = export_profiles([one, other, one], tmp_path / "new")
    # The one that is given twice is one file; its name says which, as for two that share a label.
    names = [f"board_mlp_digits_numpy_{Stored(one, None).id}.json", "other_mlp_digits_numpy.json"]
    assert written == [tmp_path / "new" / name for name in names]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "kept").write_text("x")
    (again,) = export_profiles([other], tmp_path / "there")
    assert load_profile(again).device == "other"
    assert (tmp_path / "there" / "kept").read_text() == "x"


@pytest.mark.parametrize(
    ("claimed", "origin"),
    [
        (Origin.MEASURED, Origin.IMPORTED),
        (Origin.LITERATURE, Origin.LITERATURE),
        (Origin.EMULATED, Origin.EMULATED),
    ],
)
def test_what_is_imported_claims_no_more_than_it_can_prove(
    tmp_path: Path, claimed: Origin, origin: Origin
) -> None:
    proof = {
        "instrument": {"kind": "theirs", "emulated": False},
        "sources": [{"id": "run/1", "sha256": "0" * 64}],
    }
    facts = {"origin": claimed, "basis": "their word", **(proof if claimed is Origin.MEASURED else {})}
    foreign = spread().model_copy(update={"provenance": Provenance.model_validate(facts)})
    save_profile(foreign, tmp_path / "foreign.json")
    sealed = load_profile(tmp_path / "foreign.json").content_sha256
    (stored,) = import_profiles([tmp_path / "foreign.json"], tmp_path)
    assert stored.path is not None
    kept = load_profile(stored.path)
    assert (kept.origin, stored.profile.origin) == (origin, origin)
    assert f"imported from foreign.json, content {str(sealed)[:16]}" in kept.provenance.basis
    assert kept.epoch == foreign.epoch


def test_what_was_never_sealed_is_imported_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "hand.json").write_text(spread().model_dump_json(exclude={"content_sha256"}))
    (stored,) = import_profiles([tmp_path / "hand.json"], tmp_path)
    assert "imported from hand.json, never sealed" in stored.profile.provenance.basis
