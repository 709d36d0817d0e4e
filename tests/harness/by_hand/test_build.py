"""Profiles of captures that are unlike each other: which of them is behind which number."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from device_agents.protocol import Phase
from harness.evidence.capture import Background, Capture, CaptureSession, DeviceFacts, Temperature
from harness.profiles.build import build_profile
from harness.profiles.cells import CellKey, by_background, by_cell, require_alike
from joulefleet.errors import DataQualityError
from power.profile import StatedSpread
from tests.harness.profile_captures import CLOCK, IDLE_W, Stretch, load, one_round, write


def lasting(capture: Capture, kind: Phase, seconds: float) -> Capture:
    """The same with a phase that ends so long after it began."""
    start_ns = next(m.t_dev_ns for m in capture.markers if m.kind is kind)
    moved = [
        m.model_copy(update={"t_dev_ns": start_ns + round(seconds * 1e9)})
        if (m.kind, m.edge) == (kind, "end")
        else m
        for m in capture.markers
    ]
    return replace(capture, markers=tuple(moved))


def test_what_a_profile_is_about(tmp_path: Path) -> None:
    captures = [
        write(
            tmp_path / f"c{i}", one_round([1.0, 0.5 + 0.1 * i]), threads=4, warmup_epochs=2, samples=500,
            batch_size=25, epochs_cpu_s=3.0 + i,
        )
        for i in range(3)
    ]  # fmt: skip
    found = build_profile(captures)
    assert (found.samples, found.batch_size, found.threads, found.warmup_epochs) == (500, 25, 4, 2)
    assert (found.synthetic_data, found.local_epochs, found.sessions) == (False, 2, 1)
    assert (found.dataset, found.backend, found.battery) == ("mnist", "torch", None)
    assert (found.load_levels, found.load_curve, found.stated_spread) == ((), (), None)
    assert found.epoch_cpu_s is not None
    assert (found.epoch_cpu_s.n, found.epoch_cpu_s.mean, found.epoch_cpu_s.sd) == (3, 2.0, 0.5)
    assert found.epoch_cpu_s.half_width_95 == pytest.approx(4.302652729911275 * 0.5 / math.sqrt(3))
    named = build_profile(captures, dataset="digits", backend="other")
    assert (named.dataset, named.backend) == ("digits", "other")
    rests = "rests on 1 session: the spread between days is not in its intervals; measure in 3 or more, or"
    assert found.notes == ("instrument: test", f"{rests} state one (--between-sessions)")


def test_the_largest_spread_that_a_plan_states_counts(tmp_path: Path) -> None:
    spreads = [0.02, 0.05, None]
    captures = [
        write(
            tmp_path / f"c{i}",
            one_round([1.0, 0.5]),
            session=CaptureSession(
                number=1, stated_spread=one and StatedSpread(relative_sd=one, source="plan")
            ),
        )
        for i, one in enumerate(spreads)
    ]
    captures.append(write(tmp_path / "none", one_round([1.0, 0.5])))
    found = build_profile(captures)
    assert found.stated_spread is not None
    assert found.stated_spread.relative_sd == 0.05
    for quantity in (found.epoch.duration_s, found.epoch.gross_j, found.idle_power_w, found.wait_power_w):
        assert quantity is not None
        assert (quantity.session_sd, quantity.session_sd_from) == (
            pytest.approx(0.05 * quantity.mean),
            "stated",
        )
    own = build_profile(captures, stated_spread=StatedSpread(relative_sd=0.01, source="me"))
    assert own.stated_spread is not None
    assert own.stated_spread.relative_sd == 0.01


def test_every_quantity_has_the_stated_spread(tmp_path: Path) -> None:
    captures = [
        write(tmp_path / "n", one_round([1.0, 0.5]), epochs_cpu_s=2.0),
        write(tmp_path / "l", one_round([1.0, 0.7], load_w=2.0), background=load(0.5)),
    ]
    found = build_profile(captures, stated_spread=StatedSpread(relative_sd=0.04, source="me"))
    for name, quantity in found.quantities().items():
        assert quantity.session_sd == pytest.approx(0.04 * abs(quantity.mean)), name
    assert {"epoch_cpu_s", "download.duration_s", "load_levels.cpu-0.5.load_only_power_w"} <= set(
        found.quantities()
    )


def test_rounds_of_unstated_length_are_as_long_as_the_longest(tmp_path: Path) -> None:
    """Of two and of three epochs: only one is a whole round."""
    captures = [
        write(tmp_path / "two", one_round([1.0, 0.5]), local_epochs=0),
        write(tmp_path / "three", one_round([1.2, 0.6, 0.7]), local_epochs=0),
    ]
    found = build_profile(captures)
    assert found.local_epochs == 3
    assert found.round is not None
    assert (found.round.duration_s.mean, found.round.duration_s.n) == (pytest.approx(2.5), 1)
    assert found.probe.duration_s.mean == pytest.approx(1.1)
    assert found.epoch.duration_s.mean == pytest.approx((0.5 + 0.65) / 2)
    cut = build_profile([write(tmp_path / "c", one_round([1.0, 0.5, 0.5]), local_epochs=4)])
    assert cut.round is None
    assert "no round with all its epochs usable: their sum is not stated" in cut.notes


def test_rounds_of_one_epoch_are_probes_alone_and_beside_loads(tmp_path: Path) -> None:
    captures = [
        write(tmp_path / "n", one_round([1.0]), background=Background(name="quiet")),
        write(tmp_path / "l", one_round([1.5], train_w=5.0, load_w=2.0), background=load(0.5)),
    ]
    found = build_profile(captures)
    note = "rounds of one epoch: later epochs are taken to cost what the probe does"
    assert found.notes.count(note) == 1
    assert found.epoch == found.probe
    assert [level.name for level in found.load_levels] == ["quiet", "cpu-0.5"]
    assert [level.epoch.duration_s.mean for level in found.load_levels] == pytest.approx([1.0, 1.5])
    many = build_profile([write(tmp_path / "m", one_round([1.0, 0.5]))])
    assert note not in many.notes


def test_levels_of_loads(tmp_path: Path) -> None:
    nameless = Background(name="", kind="cpu", cores=1, cpu_share=0.25, load=0.25)
    memory = Background(name="", kind="memory", cores=1, cpu_share=0.5, load=0.125)
    captures = [write(tmp_path / "n", one_round([1.0, 0.8]), background=Background(name=""))]
    for i, (background, seconds) in enumerate(((load(0.5), 1.5), (nameless, 1.2), (memory, 1.1))):
        round_ = one_round([9.0, seconds], train_w=5.0, load_w=2.0 + i)
        captures.append(write(tmp_path / f"l{i}", round_, background=background))
    found = build_profile(captures)
    assert [(one.name, one.kind, one.load) for one in found.load_levels] == [
        ("none", "none", 0.0), ("memory 0.125", "memory", 0.125), ("cpu 0.25", "cpu", 0.25),
        ("cpu-0.5", "cpu", 0.5),
    ]  # fmt: skip
    assert [one.epoch.duration_s.mean for one in found.load_levels] == pytest.approx([0.8, 1.1, 1.2, 1.5])
    powers = [one.load_only_power_w and one.load_only_power_w.mean for one in found.load_levels]
    assert powers == [None, *(pytest.approx(w, rel=2e-3) for w in (4.0, 3.0, 2.0))]
    marginal = [one.epoch.marginal_j and one.epoch.marginal_j.mean for one in found.load_levels]
    assert marginal[0] == pytest.approx((3 - IDLE_W) * 0.8, rel=2e-3)
    assert marginal[3] == pytest.approx((5 - 2.0) * 1.5, rel=5e-3)
    net = found.load_levels[3].epoch.net_j
    assert net is not None
    assert net.mean == pytest.approx((5 - IDLE_W) * 1.5, rel=5e-3)


def test_unlike_captures_beside_one_load(tmp_path: Path) -> None:
    """5 W beside a load of 2 W for 1 s, 6 W beside one of 2.5 W for 1.2 s: 3 J and 4.2 J of their own."""
    captures = [write(tmp_path / "n", one_round([0.5, 0.5]))]
    for i, (seconds, watts, load_w) in enumerate(((1.0, 5.0, 2.0), (1.2, 6.0, 2.5))):
        round_ = one_round([0.5, seconds], train_w=watts, load_w=load_w)
        captures.append(write(tmp_path / f"l{i}", round_, background=load(0.5)))
    _, level = build_profile(captures).load_levels
    marginal, alone = level.epoch.marginal_j, level.load_only_power_w
    assert marginal is not None
    assert (marginal.n, marginal.mean) == (2, pytest.approx(3.6, rel=5e-3))
    assert marginal.sd == pytest.approx(1.2 / math.sqrt(2), rel=2e-2)
    assert alone is not None
    assert (alone.n, alone.mean) == (2, pytest.approx(2.25, rel=5e-3))
    assert (level.epoch.duration_s.n, level.epoch.gross_j.n) == (2, 2)


def test_a_load_without_a_usable_epoch_is_left_out_with_the_reason(tmp_path: Path) -> None:
    beside = {"background": load(0.5), "local_epochs": 2}
    captures = [
        write(tmp_path / "n", one_round([1.0, 0.8])),
        write(tmp_path / "l1", one_round([1.0, 1.2, 1.3], load_w=2.0), throttled_epochs=(2, 3), **beside),
        write(tmp_path / "l2", one_round([1.0, 1.2], load_w=2.0), throttled_epochs=(2,), **beside),
    ]
    found = build_profile(captures)
    assert found.load_levels == ()
    (note,) = [note for note in found.notes if note.startswith("background")]
    assert note == (
        "background 'cpu-0.5' is left out: no usable epoch beside load 'cpu-0.5' in l1, l2: "
        "3 epochs were throttled"
    )
    assert found.thermal is not None
    assert (found.thermal.epochs_used, found.thermal.epochs_throttled) == (4, 3)


def test_nothing_was_run_or_all_was_out_of_the_recording(tmp_path: Path) -> None:
    none = write(tmp_path / "none", [*one_round([0.5])[:2], *one_round([0.5])[-2:]], local_epochs=2)
    with pytest.raises(DataQualityError, match="no usable later epoch in none: none was run"):
        build_profile([none])
    unstated = write(tmp_path / "unstated", [*one_round([0.5])[:2], *one_round([0.5])[-2:]], local_epochs=0)
    with pytest.raises(DataQualityError, match="no usable probe epoch in unstated: none was run"):
        build_profile([unstated])
    late = lasting(write(tmp_path / "late", one_round([1.0])), Phase.EPOCH, 60.0)
    other = lasting(write(tmp_path / "other", one_round([1.0])), Phase.EPOCH, 61.0)
    with pytest.raises(
        DataQualityError, match=r"in late, other: ends 5\d\.\d+ s after .*; ends 5\d\.\d+ s after"
    ):
        build_profile([late, other])


def test_temperatures_and_what_is_known_of_throttling(tmp_path: Path) -> None:
    heat = ((31.0, 50.0), (28.0, 61.0), (35.0, 55.0))
    temperatures = [Temperature(first_c=first, last_c=40.0, max_c=most) for first, most in heat]
    known = [True, False, True]
    captures = [
        write(tmp_path / f"c{i}", one_round([1.0, 0.5, 0.5]), temperature=one, throttling_known=known[i],
              throttled_epochs=(3,) if i == 1 else ())
        for i, one in enumerate(temperatures)
    ]  # fmt: skip
    captures.append(
        write(tmp_path / "l", one_round([1.0, 0.9], load_w=2.0), background=load(0.5), local_epochs=3)
    )
    thermal = build_profile(captures).thermal
    assert thermal is not None
    assert (thermal.temperature_min_c, thermal.temperature_max_c) == (28.0, 61.0)
    assert (thermal.epochs_used, thermal.epochs_throttled) == (3 + 2 + 3 + 2, 1)
    assert thermal.epochs_unknown == 2 + 2
    cold = build_profile([write(tmp_path / "cold", one_round([1.0, 0.5]))]).thermal
    assert cold is not None
    assert (cold.temperature_min_c, cold.temperature_max_c) == (None, None)


def test_sizes_of_transfers(tmp_path: Path) -> None:
    captures = [write(tmp_path / f"c{i}", one_round([1.0, 0.5])) for i in range(2)]
    found = build_profile(captures)
    assert found.download is not None
    assert found.upload is not None
    assert (found.download.bytes, found.upload.bytes) == (1000, 900)
    assert (found.download.duration_s.n, found.download.gross_j.n) == (2, 2)
    other = one_round([1.0, 0.5])
    other[2] = replace(other[2], extra={"bytes": 1001})
    mixed = build_profile([*captures, write(tmp_path / "other", other)])
    assert mixed.download is not None
    assert mixed.download.bytes is None


def test_idle_of_the_second_capture_alone(tmp_path: Path) -> None:
    captures = [
        write(tmp_path / "a", one_round([0.5, 0.5]), idle=()),
        write(tmp_path / "b", one_round([0.5, 0.5])),
    ]
    found = build_profile(captures)
    assert found.idle_power_w is not None
    assert found.idle_power_w.mean == pytest.approx(IDLE_W, rel=1e-3)
    assert {source.id for source in found.provenance.sources} == {"a", "b"}


def test_every_transfer_of_a_capture_counts(tmp_path: Path) -> None:
    """Downloads of 1.5 W for 0.4 s and of 3.5 W for 0.2 s."""
    round_ = one_round([1.0, 0.5])
    round_.insert(3, Stretch(3.5, 0.2, Phase.DOWNLOAD, extra={"bytes": 1000}))
    found = build_profile([write(tmp_path / "c", round_)]).download
    assert found is not None
    assert (found.gross_j.n, found.duration_s.n) == (2, 2)
    assert found.gross_j.mean == pytest.approx((0.6 + 0.7) / 2, rel=5e-3)
    assert found.duration_s.mean == pytest.approx(0.3)


def test_transfers_of_which_no_energy_is_known(tmp_path: Path) -> None:
    captures = [
        lasting(write(tmp_path / f"c{s:g}", one_round([1.0, 0.5])), Phase.UPLOAD, s) for s in (70.0, 60.0)
    ]
    found = build_profile(captures)
    assert found.upload is None
    (note,) = [note for note in found.notes if note.startswith("upload")]
    first, second = note.removeprefix("upload is left out, its energy is not known: ").split("; ")
    assert first < second
    assert first.startswith("ends 5")
    assert second.startswith("ends 6")
    without = build_profile([write(tmp_path / "w", one_round([1.0, 0.5], transfers=False))])
    assert without.upload is None
    assert not any(note.startswith("upload") for note in without.notes)


@pytest.mark.parametrize(
    ("sync_s", "wait_s", "told"),
    [(1e-4, 0.05, True), (1e-4, 0.049, False), (0.01, 0.2, True), (0.01, 0.199, False)],
)
def test_waits_have_to_be_long_enough(tmp_path: Path, sync_s: float, wait_s: float, told: bool) -> None:
    clock = CLOCK.model_copy(update={"sync_uncertainty_s": sync_s})
    capture = write(tmp_path / "c", one_round([1.0, 0.5], wait_s=0.5), clock=clock)
    found = build_profile([lasting(capture, Phase.WAIT, wait_s)])
    assert (found.wait_power_w is not None) is told
    note = "no wait for the decision was long enough to tell its power"
    assert (note in found.notes) is not told


def test_a_short_wait_among_long_ones_is_left_out(tmp_path: Path) -> None:
    round_ = one_round([1.0, 0.5, 0.5])
    at = next(i for i, one in enumerate(round_) if one.epoch == 3)
    round_.insert(at, Stretch(9.0, 0.02, Phase.WAIT))
    found = build_profile([write(tmp_path / "c", round_)]).wait_power_w
    assert found is not None
    assert (found.n, found.mean) == (1, pytest.approx(1.0, rel=5e-3))


def test_notes_of_all_captures(tmp_path: Path) -> None:
    captures = [
        write(tmp_path / "n", one_round([1.0, 0.5]), synthetic_data=True),
        write(tmp_path / "l", one_round([1.0, 0.9], load_w=2.0), background=load(0.5), synthetic_data=True),
    ]
    vars(captures[0].recording)["notes"] = ("calibrated long ago",)
    vars(captures[1].recording)["notes"] = ("calibrated by others",)
    notes = build_profile(captures).notes
    said = [
        "instrument: test", "calibrated long ago", "calibrated by others",
        "trained on random samples of the right shape, which may take longer than real ones",
    ]  # fmt: skip
    assert [note for note in notes if note in said] == said


# What belongs together


def key_of(device: str, backend: str = "torch") -> CellKey:
    return CellKey(device, "mnist-lenet5", "mnist", backend)


def test_cells(tmp_path: Path) -> None:
    made = [("b", "torch"), ("a", "torch"), ("b", "numpy"), ("b", "torch")]
    captures = [
        write(
            tmp_path / f"c{i}",
            one_round([0.2]),
            device=DeviceFacts(name=name, transport="ssh"),
            backend=backend,
        )
        for i, (name, backend) in enumerate(made)
    ]
    found = by_cell(captures)
    assert list(found) == [key_of("a"), key_of("b", "numpy"), key_of("b")]
    assert [[c.record.capture_id for c in group] for group in found.values()] == [
        ["c1"],
        ["c2"],
        ["c0", "c3"],
    ]
    assert (key_of("a").model, CellKey("a", "softmax", "mnist", "torch").model) == ("lenet5", "softmax")
    with pytest.raises(DataQualityError, match="captures of two devices: b and a"):
        require_alike(captures[:2])
    with pytest.raises(DataQualityError, match="c0 and c2 differ in backend: 'torch' and 'numpy'"):
        require_alike([captures[0], captures[3], captures[2]])
    require_alike([captures[0], captures[3]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workload", "softmax"), ("dataset", "other"), ("backend", "numpy"), ("samples", 601),
        ("batch_size", 31), ("threads", 2), ("synthetic_data", True), ("local_epochs", 7),
        ("warmup_epochs", 1),
    ],
)  # fmt: skip
def test_captures_that_differ(tmp_path: Path, name: str, value: object) -> None:
    first = write(tmp_path / "a", one_round([0.2]), threads=1)
    other = write(tmp_path / "b", one_round([0.2]), **({"threads": 1} | {name: value}))
    with pytest.raises(DataQualityError, match=f"captures a and b differ in {name}"):
        require_alike([first, other])
    unstated = write(tmp_path / "c", one_round([0.2]), threads=None)
    require_alike([first, unstated])
    require_alike([unstated, first])


def test_levels_in_order(tmp_path: Path) -> None:
    backgrounds = [load(0.5), Background(), load(0.25), load(0.5), Background()]
    captures = [
        write(tmp_path / f"c{i}", one_round([0.2]), background=one) for i, one in enumerate(backgrounds)
    ]
    levels = by_background(captures, [1, 2, 3, 4, 5])
    assert [(level.background.load, [c.session for c in level.captures]) for level in levels] == [
        (0.0, [2, 5]), (0.25, [3]), (0.5, [1, 4]),
    ]  # fmt: skip
    with pytest.raises(DataQualityError, match="board: no capture without background load"):
        by_background(captures[2:4], [1, 2])
