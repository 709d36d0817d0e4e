import json
from pathlib import Path

import pytest

from joulefleet.errors import ConfigError, DataQualityError, StorageError
from joulefleet.provenance import Instrument, Origin, Provenance, SourceRef
from power.profile.cost_arrays import missing_costs, phase_costs, profile_costs
from power.profile.model import (
    DeviceProfile,
    LoadPoint,
    PhaseCost,
    Quantity,
    TransferCost,
    load_profile,
    save_profile,
)

SOURCE = SourceRef(id="capture-1", sha256="a" * 64)
REAL = Instrument(kind="monsoon-hvpm", serial="7", emulated=False)


def profile(**changes: object) -> DeviceProfile:
    cost = PhaseCost(
        duration_s=Quantity(mean=2.0, n=3, sd=0.1), gross_j=Quantity(mean=5.0, half_width_95=0.2)
    )
    fields = {
        "device": "pi", "model": "lenet5", "dataset": "mnist", "backend": "torch", "samples": 600,
        "batch_size": 32, "probe": cost, "epoch": cost,
        "provenance": Provenance(origin=Origin.MEASURED, instrument=REAL, sources=(SOURCE,)),
    }  # fmt: skip
    return DeviceProfile.model_validate({**fields, **changes})


def test_measured_survives_only_with_its_chain(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(profile(), path)
    verified = load_profile(path, verify=lambda source: source == SOURCE)
    assert verified.origin is Origin.MEASURED
    assert verified.is_sealed
    alone = load_profile(path)
    assert alone.origin is Origin.IMPORTED
    assert "captures not at hand: capture-1" in alone.provenance.basis
    broken = load_profile(path, verify=lambda _: False)
    assert broken.origin is Origin.IMPORTED


def test_an_edited_file_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(profile(), path)
    data = json.loads(path.read_text())
    data["epoch"]["gross_j"]["mean"] = 0.1
    path.write_text(json.dumps(data))
    loaded = load_profile(path, verify=lambda _: True)
    assert loaded.origin is Origin.IMPORTED
    assert "edited" in loaded.provenance.basis


def test_an_emulated_profile_cannot_be_edited_into_a_measured_one(tmp_path: Path) -> None:
    fake = Instrument(kind="monsoon-hvpm", serial="7", emulated=True)
    emulated = profile(provenance=Provenance(origin=Origin.EMULATED, instrument=fake, sources=(SOURCE,)))
    path = tmp_path / "p.json"
    save_profile(emulated, path)
    assert load_profile(path, verify=lambda _: True).origin is Origin.EMULATED
    path.write_text(path.read_text().replace('"origin": "emulated"', '"origin": "measured"'))
    with pytest.raises(ConfigError, match="the instrument is emulated"):
        load_profile(path)


def test_saving_never_overwrites(tmp_path: Path) -> None:
    save_profile(profile(), tmp_path / "p.json")
    with pytest.raises(StorageError, match="not overwritten"):
        save_profile(profile(), tmp_path / "p.json")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"samples": 0}, "samples"),
        ({"device": ""}, "device"),
        ({"provenance": None}, "provenance"),
        ({"load_curve": (LoadPoint(load=0.5, slowdown=1, energy_factor=1),) * 2}, "load_curve"),
        ({"epoch": {"duration_s": {"mean": -1}, "gross_j": {"mean": 1}}}, "duration_s"),
        ({"watts": 3}, "watts"),
    ],
)
def test_the_offending_field_is_named(change: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        profile(**change)


def test_provenance_is_not_optional() -> None:
    fields = profile().model_dump()
    del fields["provenance"]
    with pytest.raises(ValueError, match="provenance"):
        DeviceProfile.model_validate(fields)


def test_what_was_sealed_before_fields_were_added_is_still_sealed() -> None:
    """The seal is the one that the version without `LATER` fields gave to the same content."""
    before = "e5cb6aed47b11b55cbf6ea3d1781a8c2d9601188eb594df3761a967e7ca27ba3"
    old = profile()
    assert old.sealed().content_sha256 == before
    assert old.model_copy(update={"content_sha256": before}).is_sealed
    assert profile(threads=1).sealed().content_sha256 != before, "a field that says something is sealed too"


def test_waiting_costs_what_the_kind_of_energy_counts() -> None:
    awake, idle = Quantity(mean=0.4), Quantity(mean=0.1)
    both = profile(wait_power_w=awake, idle_power_w=idle)
    assert both.waiting_w("gross") == 0.4
    assert both.waiting_w("net") == both.waiting_w("marginal") == pytest.approx(0.3)
    assert profile(wait_power_w=idle, idle_power_w=awake).waiting_w() == 0.0
    assert profile(idle_power_w=idle).waiting_w() is None
    alone = profile(wait_power_w=awake)
    assert alone.waiting_w("gross") == 0.4
    with pytest.raises(DataQualityError, match="no idle power, so its waiting has no net energy"):
        alone.waiting_w("net")


def test_a_quantity_gives_its_interval() -> None:
    around = Quantity(mean=5.0, half_width_95=0.5).interval
    assert (around.mean, around.low, around.high) == (5.0, 4.5, 5.5)
    ratio = Quantity(mean=4.0, factor_95=2.0).interval
    assert (ratio.low, ratio.high) == (2.0, 8.0)
    negative = Quantity(mean=-4.0, factor_95=2.0).interval
    assert (negative.low, negative.high) == (-8.0, -2.0)
    assert not Quantity(mean=1.0).interval.known


@pytest.mark.parametrize(
    ("absent", "part"),
    [("download", "download"), ("upload", "upload"), ("wait_power_w", "power while waiting")],
)
def test_a_missing_cost_counts_as_the_caller_says_or_not_at_all(absent: str, part: str) -> None:
    transfer = TransferCost(duration_s=Quantity(mean=1.0), gross_j=Quantity(mean=3.0), bytes=10)
    whole = profile(download=transfer, upload=transfer, wait_power_w=Quantity(mean=0.4))
    costs = phase_costs([whole, whole], "gross")
    assert costs.probe_s.tolist() == [2.0, 2.0]
    assert (costs.download_s[0], costs.upload_j[1], costs.wait_w[0]) == (1.0, 3.0, 0.4)
    assert missing_costs([whole]) == ()
    gap = whole.model_copy(update={absent: None})
    for tabulated in (phase_costs, profile_costs):
        with pytest.raises(DataQualityError, match=f"pi/lenet5/mnist/torch has no {part}"):
            tabulated([whole, gap], "gross")
    assert missing_costs([whole, gap]) == (part,)
    free = profile_costs([whole, gap], "gross", missing="costs_nothing")
    column = free.wait_w if absent == "wait_power_w" else getattr(free, f"{absent}_j")
    assert (column[0] > 0, column[1]) == (True, 0.0)
    assert any("costs nothing" in text for text in free.gaps)
