from pathlib import Path

import numpy as np
import pytest

from harness.profiles.build import build_profile
from harness.profiles.cells import by_cell
from harness.profiles.epochs import CutCapture
from joulefleet.errors import DataQualityError
from joulefleet.provenance import Origin
from power.profile.model import Battery
from tests.harness.profile_captures import CLOCK, IDLE_W, load, one_round, write


def test_every_phase_is_in_the_profile(tmp_path: Path) -> None:
    captures = [
        write(tmp_path / f"c{i}", one_round([1.0 + 0.01 * i, 0.8, 0.8]), repetition=i + 1) for i in range(3)
    ]
    profile = build_profile(captures)
    assert (profile.device, profile.model, profile.dataset, profile.backend) == (
        "board", "lenet5", "mnist", "torch",
    )  # fmt: skip
    assert profile.local_epochs == 3
    assert profile.probe.duration_s.mean == pytest.approx(1.01)
    assert profile.probe.gross_j.mean == pytest.approx(3.03, rel=1e-3)
    assert profile.probe.duration_s.n == 3
    assert profile.epoch.duration_s.mean == pytest.approx(0.8)
    assert profile.epoch.gross_j.mean == pytest.approx(2.4, rel=1e-3)
    assert profile.epoch.energy_j("net").mean == pytest.approx((3 - IDLE_W) * 0.8, rel=1e-3)
    assert profile.epoch.marginal_j == profile.epoch.net_j
    assert profile.round is not None
    assert profile.round.duration_s.mean == pytest.approx(2.61)
    assert profile.round.gross_j.mean == pytest.approx(3 * 2.61, rel=1e-3)
    assert profile.download is not None
    assert (profile.download.bytes, profile.download.duration_s.mean) == (1000, pytest.approx(0.4))
    assert profile.upload is not None
    assert profile.upload.gross_j.mean == pytest.approx(0.6, rel=5e-3)
    assert profile.upload.bytes == 900
    assert profile.wait_power_w is not None
    assert profile.wait_power_w.mean == pytest.approx(1.0, rel=5e-3)
    assert profile.idle_power_w is not None
    assert profile.idle_power_w.mean == pytest.approx(IDLE_W, rel=1e-3)
    assert profile.origin is Origin.EMULATED
    assert {source.id for source in profile.provenance.sources} == {"c0", "c1", "c2"}


def test_an_emulated_meter_never_yields_measured(tmp_path: Path) -> None:
    real = [write(tmp_path / f"r{i}", one_round([1.0, 1.0]), emulated=False) for i in range(2)]
    assert build_profile(real).origin is Origin.MEASURED
    emulated = write(tmp_path / "e", one_round([1.0, 1.0]))
    assert build_profile([*real, emulated]).origin is Origin.EMULATED


def test_throttled_epochs_are_never_averaged_in(tmp_path: Path) -> None:
    good = write(tmp_path / "good", one_round([1.0, 1.0, 1.0]), throttling_known=True)
    hot = write(tmp_path / "hot", one_round([1.0, 5.0, 1.0]), throttled_epochs=(2,), throttling_known=True)
    profile = build_profile([good, hot])
    assert profile.epoch.duration_s.mean == pytest.approx(1.0)
    assert profile.round is not None
    assert profile.round.duration_s.n == 1, "the round with a throttled epoch is out as well"
    assert profile.thermal is not None
    assert (profile.thermal.epochs_used, profile.thermal.epochs_throttled) == (5, 1)
    assert profile.thermal.epochs_unknown == 0
    assert [epoch.throttled for epoch in CutCapture(hot).epochs] == [False, True, False]


def test_all_throttled_is_an_error_that_says_so(tmp_path: Path) -> None:
    hot = write(tmp_path / "hot", one_round([1.0, 1.0]), throttled_epochs=(1, 2))
    with pytest.raises(DataQualityError, match="2 epochs were throttled"):
        build_profile([hot])


def test_a_load_is_not_the_trainings_cost(tmp_path: Path) -> None:
    """Gross 5 W beside a load that draws 2.5 W by itself: the training's own part is 2.5 W."""
    captures = [write(tmp_path / f"n{i}", one_round([1.0, 1.0])) for i in range(2)]
    captures += [
        write(tmp_path / f"l{i}", one_round([1.6, 1.5], train_w=5.0, load_w=2.5), background=load(0.5))
        for i in range(2)
    ]
    profile = build_profile(captures)
    none, half = profile.load_levels
    assert none.epoch == profile.epoch
    assert half.load_only_power_w is not None
    assert half.load_only_power_w.mean == pytest.approx(2.5, rel=1e-3)
    assert half.epoch.gross_j.mean == pytest.approx(7.5, rel=1e-3)
    assert half.epoch.energy_j("net").mean == pytest.approx((5 - IDLE_W) * 1.5, rel=1e-3)
    assert half.epoch.energy_j("marginal").mean == pytest.approx(2.5 * 1.5, rel=2e-3)
    assert profile.epoch.duration_s.mean == pytest.approx(1.0), "the load is not in the other numbers"
    assert [point.load for point in profile.load_curve] == [0, 0.5]
    assert profile.slowdown_at(0.5) == pytest.approx(1.5)
    assert profile.energy_factor_at(0.5) == pytest.approx(3.75 / 2.2, rel=1e-2)
    assert profile.slowdown_at([0.9, 0.0]).tolist() == pytest.approx([1.5, 1.0]), "held beyond the last point"


def test_the_loads_own_uncertainty_is_in_the_marginal_energy(tmp_path: Path) -> None:
    """The load alone was seen for one second: its noise weighs more than that of two idle stretches."""
    rng = np.random.default_rng(5)
    captures = [write(tmp_path / "n", one_round([1.0, 1.0]), noise_w=0.3, rng=rng)]
    stretches = one_round([1.0, 1.0, 1.0, 1.0], train_w=5.0, load_w=2.5)
    captures.append(
        write(tmp_path / "l", stretches, noise_w=0.3, rng=rng, background=load(0.5), local_epochs=2)
    )
    level = build_profile(captures).load_levels[1].epoch
    assert level.marginal_j is not None
    assert level.net_j is not None
    assert level.marginal_j.half_width_95 is not None
    assert level.net_j.half_width_95 is not None
    assert level.marginal_j.half_width_95 > level.net_j.half_width_95 > 0


def test_without_the_load_alone_there_is_no_marginal_energy(tmp_path: Path) -> None:
    captures = [
        write(tmp_path / "n", one_round([1.0, 1.0])),
        write(tmp_path / "l", one_round([1.0, 1.5], train_w=5.0), background=load(0.5)),
    ]
    profile = build_profile(captures)
    assert profile.load_levels[1].epoch.marginal_j is None
    assert profile.load_curve[1].slowdown == pytest.approx(1.5), "how long it takes is known all the same"
    assert profile.load_curve[1].energy_factor == 1
    assert (
        "background 'cpu-0.5': no marginal energy; its energy is taken from the levels beside it"
        in profile.notes
    )


def test_loads_of_the_same_size_are_levels_of_their_own(tmp_path: Path) -> None:
    """One worker at half a core and two at a quarter each ask for as much, and slow down otherwise."""
    one = load(0.5)
    two = one.model_copy(update={"name": "two-quarters", "cores": 2, "cpu_share": 0.25})
    captures = [write(tmp_path / "n", one_round([1.0, 1.0]))]
    for background, seconds in ((one, 1.4), (two, 1.6)):
        stretches = one_round([seconds] * 2, train_w=5.0, load_w=2.5)
        captures.append(write(tmp_path / background.name, stretches, background=background))
    profile = build_profile(captures)
    assert {level.name: level.epoch.duration_s.mean for level in profile.load_levels[1:]} == {
        "cpu-0.5": pytest.approx(1.4),
        "two-quarters": pytest.approx(1.6),
    }
    assert profile.load_curve[1].slowdown == pytest.approx(1.5)
    assert any("ask for the same load of 50%" in note for note in profile.notes)


def test_instrument_limits_widen_the_interval(tmp_path: Path) -> None:
    captures = [write(tmp_path / f"c{i}", one_round([1.0, 1.0]), gain_rel=0.02) for i in range(3)]
    cost = build_profile(captures).epoch
    assert cost.gross_j.half_width_95 == pytest.approx(0.02 * 3.0, rel=0.05)


@pytest.mark.parametrize(("lag_s", "seen_s"), [(0.005, 0.005), (0.01, 0.01), (0.008, None)])
def test_the_lag_of_the_supply_is_inside_the_interval(
    tmp_path: Path, lag_s: float, seen_s: float | None
) -> None:
    """An epoch between quieter phases misses step x lag of its energy, in every repetition alike."""
    truth_j, missed_j = 3.0 * 0.4, 2.0 * lag_s
    for tau_s in (seen_s, 0.0):
        captures = [
            write(
                tmp_path / f"{tau_s}-{i}",
                one_round([0.4, 0.4], wait_s=0.3, transfers=False),
                lag_s=lag_s,
                clock=CLOCK.model_copy(update={"tau_s": tau_s}),
            )
            for i in range(3)
        ]
        gross_j = build_profile(captures).epoch.gross_j
        assert gross_j.mean == pytest.approx(truth_j - missed_j, abs=0.2 * missed_j)
        assert (abs(gross_j.mean - truth_j) < gross_j.half_width_95) is (tau_s != 0.0)
        assert gross_j.half_width_95 < 1.6 * 2.2 * (seen_s or 0.01)


def test_many_repetitions_of_one_session_are_students_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    seconds = np.round(1.0 + rng.exponential(0.05, 12), 3)
    captures = [write(tmp_path / f"c{i}", one_round([1.0, float(s)])) for i, s in enumerate(seconds)]
    for n, t in ((9, 2.306004), (12, 2.200985)):
        found = build_profile(captures[:n]).epoch
        sd = float(np.std(seconds[:n], ddof=1))
        assert (found.duration_s.n, found.duration_s.sessions) == (n, 1)
        assert found.duration_s.sd == pytest.approx(sd, rel=1e-6)
        assert found.duration_s.half_width_95 == pytest.approx(t * sd / n**0.5, rel=1e-6)
        assert found.gross_j.half_width_95 == pytest.approx(3 * t * sd / n**0.5, rel=0.2)


def test_captures_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "a", one_round([1.0, 1.0]))
    with pytest.raises(DataQualityError, match="differ in samples: 600 and 700"):
        build_profile([first, write(tmp_path / "b", one_round([1.0, 1.0]), samples=700)])
    with pytest.raises(DataQualityError, match="no capture to build"):
        build_profile([])
    with pytest.raises(DataQualityError, match="no capture without background load"):
        build_profile([write(tmp_path / "c", one_round([1.0, 1.0], load_w=1.0), background=load(0.5))])


def test_one_profile_per_cell(tmp_path: Path) -> None:
    captures = [
        write(tmp_path / f"{backend}{i}", one_round([1.0, 1.0]), backend=backend)
        for backend in ("torch", "onnxruntime")
        for i in range(2)
    ]
    profiles = [build_profile(found) for found in by_cell(captures).values()]
    assert [profile.label for profile in profiles] == [
        "board/lenet5/mnist/onnxruntime",
        "board/lenet5/mnist/torch",
    ]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    capture = write(
        tmp_path / "a", one_round([1.0], wait_s=0.02, transfers=False), synthetic_data=True, idle=()
    )
    profile = build_profile([capture])
    assert profile.download is None
    assert profile.idle_power_w is None
    assert profile.wait_power_w is None
    assert profile.epoch.net_j is None
    assert profile.epoch == profile.probe
    notes = " ".join(profile.notes)
    for expected in ("wait for the decision", "rounds of one epoch", "random samples"):
        assert expected in notes


def test_idle_time_that_cannot_be_used_costs_the_net_energy_of_that_capture_only(tmp_path: Path) -> None:
    from harness.evidence.capture import HostWindow

    good = write(tmp_path / "good", one_round([1.0, 1.0]))
    outside = (HostWindow(start_ns=-(10**9), end_ns=0), HostWindow(start_ns=10**6, end_ns=10**9))
    bad = write(tmp_path / "bad", one_round([1.0, 1.2]), idle=outside)
    profile = build_profile([good, bad])
    assert profile.epoch.gross_j.n == 2
    assert profile.epoch.energy_j("net").n == 1
    assert profile.epoch.energy_j("net").mean == pytest.approx(3 - IDLE_W, rel=1e-3)
    assert any(note.startswith("bad: idle interval") for note in profile.notes)


def test_battery_comes_from_the_inventory(tmp_path: Path) -> None:
    from harness.evidence.capture import DeviceFacts

    battery = Battery(capacity_j=50_000, charge_w=10)
    facts = DeviceFacts(name="phone", transport="ssh", battery=battery)
    assert build_profile([write(tmp_path / "a", one_round([1.0, 1.0]), device=facts)]).battery == battery
