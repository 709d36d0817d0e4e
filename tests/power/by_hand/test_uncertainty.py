"""An energy's interval by hand: every part of it, with two ranges, two instruments, unlike windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from joulefleet.errors import DataQualityError
from power.energy.baseline import Baseline
from power.energy.uncertainty import (
    EnergyBudget,
    MeasuredRecording,
    UncertaintyPart,
    _resemble_neighbours,
    error_factors,
    error_sensitivities,
    gross_energy,
    idle_energy,
    net_energy,
    unit_half_width_j,
)
from power.model import Accuracy, RangeAccuracy
from tests.power.by_hand.made import energy_of, flicker, idle_of, measured

Z = 1.959963984540054


def accuracy_of(scale: float = 1.0, *, step_a: float | None = 0.006, source: str = "first") -> Accuracy:
    return Accuracy(
        current=(
            RangeAccuracy(name="fine", up_to_a=0.3, gain_rel=0.01 * scale, offset_a=0.001, step_a=0.0),
            RangeAccuracy(name="coarse", gain_rel=0.02 * scale, offset_a=0.004, step_a=step_a),
        ),
        voltage_gain_rel=0.005,
        voltage_offset_v=0.03,
        voltage_step_v=0.012,
        source=source,
    )


def instrument_j(accuracy: Accuracy, sensitivity: list[float]) -> float:
    """Each error times what it moves; the step as a uniform distribution."""
    fine, coarse = accuracy.current
    limits = [fine.gain_rel, coarse.gain_rel, fine.offset_a, coarse.offset_a, 0.005, 0.03]
    steps = [0.0, coarse.step_a or 0.0, 0.012]
    standard = [limit / Z for limit in limits] + [step / math.sqrt(12) for step in (*steps, *steps)]
    return math.hypot(*(s * d for s, d in zip(sensitivity, standard, strict=True)))


def split(start_s: float, end_s: float, fine_j: float, coarse_j: float, **more: Any) -> Any:
    """A window with energy in both ranges, 4 V: half of the time in each."""
    half_vs = 2 * (end_s - start_s)
    ranges = {"range_energy_j": (fine_j, coarse_j), "range_volt_s": (half_vs, half_vs)}
    return measured(start_s, end_s, fine_j + coarse_j, **(ranges | more))


def test_limits_of_the_fields() -> None:
    for bad in ({"standard_j": -0.1}, {"standard_j": 0.1, "dof": 0.0}):
        with pytest.raises(ValidationError):
            UncertaintyPart.model_validate(bad)
    assert UncertaintyPart(standard_j=0.0, dof=0.5).dof == 0.5
    assert UncertaintyPart(standard_j=0.5).dof is None
    assert UncertaintyPart(standard_j=0.5).half_width_j == pytest.approx(0.5 * Z)
    good = {
        "value_j": -1.0, "half_width_j": 0.0, "parts": {}, "n": 1, "recordings": 1, "covers": "this window",
    }  # fmt: skip
    plain = EnergyBudget.model_validate(good)
    assert (plain.sd_j, plain.notes) == (None, ())
    assert EnergyBudget.model_validate({**good, "sd_j": 0.0, "half_width_j": 0.5}).sd_j == 0.0
    assert EnergyBudget.model_validate({**good, "sd_j": 0.5}).sd_j == 0.5
    for bad in ({"half_width_j": -0.1}, {"n": 0}, {"recordings": 0}, {"sd_j": -0.1}):
        with pytest.raises(ValidationError):
            EnergyBudget.model_validate({**good, **bad})


def test_what_each_error_moves() -> None:
    energy = energy_of(
        2, 12, 30.0, charge_c=7.0, range_energy_j=(10.0, 20.0), range_volt_s=(15.0, 25.0)
    )  # fmt: skip
    moved = [10, 20, 15, 25, 30, 7]
    assert error_sensitivities(energy).tolist() == [*moved, 15, 25, 7, 0, 0, 0]
    assert error_sensitivities(energy, idle=True).tolist() == [*moved, 0, 0, 0, 15, 25, 7]
    nothing = energy_of(2, 12, 0.0, charge_c=0.0)
    assert error_sensitivities(nothing)[[4, 5, 8]].tolist() == [0, 0, 0]
    assert error_sensitivities(nothing, idle=True)[[4, 5, 11]].tolist() == [0, 0, 0]


def test_the_limit_of_each_error() -> None:
    step = Z / math.sqrt(12)
    diagonal = [0.01, 0.02, 0.001, 0.004, 0.005, 0.03]
    steps = [0.0, 0.006 * step, 0.012 * step]
    assert error_factors(accuracy_of()) == pytest.approx(np.diag([*diagonal, *steps, *steps]))
    unknown = Accuracy(
        current=(RangeAccuracy(name="all", gain_rel=0.5, offset_a=0.25),),
        voltage_gain_rel=0.125, voltage_offset_v=0.75, source="x",
    )  # fmt: skip
    assert error_factors(unknown) == pytest.approx(np.diag([0.5, 0.25, 0.125, 0.75, 0, 0, 0, 0]))


def test_one_window_has_the_parts_of_its_own() -> None:
    work = split(
        10, 14, 3.0, 9.0, earlier_j=0.3, later_j=-0.4, noise_j=0.05, loss_j=0.07, beside_s=0.5, beside_j=0.9
    )  # fmt: skip
    found = gross_energy([MeasuredRecording((work,), accuracy_of())])
    assert found.value_j == pytest.approx(12.0)
    assert (found.n, found.recordings, found.sd_j, found.covers) == (1, 1, None, "this window")
    sensitivity = [3, 9, 8, 8, 12, 3, 8, 8, 3, 0, 0, 0]
    standard = {
        "instrument": instrument_j(accuracy_of(), sensitivity),
        "clock": math.sqrt((0.09 + 0.16) / 2),
        "extent": 0.9 / math.sqrt(3),
        "noise": 0.05,
        "loss": 0.07,
    }
    assert {name: part.standard_j for name, part in found.parts.items()} == pytest.approx(standard)
    assert all(part.dof is None for part in found.parts.values())
    assert found.half_width_j == pytest.approx(Z * math.hypot(*standard.values()))
    assert found.interval.low == pytest.approx(12.0 - found.half_width_j)
    left = found.without("clock")
    assert set(left.parts) == set(standard) - {"clock"}
    rest = [value for name, value in standard.items() if name != "clock"]
    assert left.half_width_j == pytest.approx(Z * math.hypot(*rest))


def test_windows_of_one_recording_are_repeats() -> None:
    windows = (
        split(0, 2, 1.0, 3.0, earlier_j=0.1, later_j=0.2, noise_j=9.0, loss_j=9.0, beside_j=0.3),
        split(3, 6, 2.0, 5.0, earlier_j=0.2, later_j=0.6, noise_j=9.0, loss_j=9.0, beside_j=0.9),
        split(7, 11, 3.0, 10.0, earlier_j=0.6, later_j=-0.2),
    )
    found = gross_energy([MeasuredRecording(windows, accuracy_of())])
    assert found.value_j == pytest.approx(8.0)  # of 4, 7 and 13 J
    assert found.sd_j == pytest.approx(math.sqrt((16 + 1 + 25) / 2))
    assert (found.n, found.recordings, found.covers) == (3, 1, "the mean of repeated windows")
    means = [2, 6, 6, 6, 8, 2, 6, 6, 2, 0, 0, 0]
    standard = {
        "instrument": instrument_j(accuracy_of(), means),
        "clock": math.hypot(0.3, 0.2) / math.sqrt(2),
        "extent": 0.4 / math.sqrt(3),
        "noise": 0.0,
        "repeats": math.sqrt(21 / 3),
    }
    assert {name: part.standard_j for name, part in found.parts.items()} == pytest.approx(standard)
    assert found.parts["repeats"].dof == 2.0
    student = 4.302652729911275
    widths = [value * (student if name == "repeats" else Z) for name, value in standard.items()]
    assert found.half_width_j == pytest.approx(math.hypot(*widths))


def test_two_instruments_err_apart_and_one_errs_alike() -> None:
    a, b = accuracy_of(), accuracy_of(3.0, source="second")
    recordings = [
        MeasuredRecording((split(0, 2, 1.0, 3.0, earlier_j=0.1, later_j=0.1, beside_j=0.3),), a),
        MeasuredRecording(
            (split(0, 2, 1.0, 5.0, noise_j=9.0), split(4, 6, 2.0, 6.0, earlier_j=0.8, later_j=0.8)), a
        ),
        MeasuredRecording((split(0, 4, 2.0, 8.0, loss_j=9.0),), b),
        MeasuredRecording((), b),
    ]
    found = gross_energy(recordings)
    # Of 4 J, the mean of 6 and 8 J, and 10 J.
    assert found.value_j == pytest.approx(7.0)
    assert found.sd_j == pytest.approx(3.0)
    assert (found.n, found.recordings) == (4, 3)
    of_a = [(1 + 1.5) / 3, 8.5 / 3, 8 / 3, 8 / 3, 11 / 3, 11 / 12, 8 / 3, 8 / 3, 11 / 12, 0, 0, 0]
    of_b = [2 / 3, 8 / 3, 8 / 3, 8 / 3, 10 / 3, 10 / 12, 8 / 3, 8 / 3, 10 / 12, 0, 0, 0]
    standard = {
        "instrument": math.hypot(instrument_j(a, of_a), instrument_j(b, of_b)),
        "clock": (0.1 + 0.4 + 0.0) / 3,
        "extent": 0.1 / math.sqrt(3),
        "repeats": 3.0 / math.sqrt(3),
    }
    assert {name: part.standard_j for name, part in found.parts.items()} == pytest.approx(standard)
    assert found.parts["repeats"].dof == 2.0
    # What all readings of a unit share: gain and offset, not its steps.
    gains = math.hypot(*(instrument_j(one, [*of[:6], *[0.0] * 6]) for one, of in ((a, of_a), (b, of_b))))
    assert unit_half_width_j(recordings, net=False) == pytest.approx(Z * gains)


SHAKY = (2 + 0.1 * np.cumsum(np.random.default_rng(1).normal(0, 1, 32))).tolist()


def test_net_is_what_is_above_idle() -> None:
    volts = {"range_volt_s": (80.0, 0.0), "charge_c": 5.0}
    before = idle_of(
        0, 10, 2.0, means=SHAKY, range_energy_j=(20.0, 0.0), **(volts | {"range_volt_s": (40.0, 0.0)})
    )
    after = idle_of(40, 60, 3.0, range_energy_j=(60.0, 0.0), **(volts | {"charge_c": 15.0}))
    baseline = Baseline(before, after)
    work = split(13, 15, 3.0, 9.0, beside_s=0.5, beside_j=2.0, noise_j=0.05, loss_j=0.07)
    # At 14 s idle counts 0.8 before and 0.2 after: over 2 s, 0.16 of 20 J and 0.02 of 60 J.
    joules, moved = idle_energy(baseline, work.energy)
    assert joules == pytest.approx(0.16 * 20 + 0.02 * 60)
    volt_s, coulombs = 0.16 * 40 + 0.02 * 80, 0.16 * 5 + 0.02 * 15
    idle = [joules, 0, volt_s, 0, joules, coulombs, 0, 0, 0, volt_s, 0, coulombs]
    assert moved.tolist() == pytest.approx(idle)
    session = MeasuredRecording((work,), accuracy_of(), baseline)
    net = net_energy([session])
    assert net.value_j == pytest.approx(12.0 - joules)
    gross = np.array([3, 9, 4, 4, 12, 3, 4, 4, 3, 0, 0, 0])
    assert net.parts["instrument"].standard_j == pytest.approx(
        instrument_j(accuracy_of(), (gross - idle).tolist())
    )
    net_of = [*(gross - idle).tolist()[:6], *[0.0] * 6]
    assert unit_half_width_j([session], net=True) == pytest.approx(Z * instrument_j(accuracy_of(), net_of))
    # At the end of the window, 15 s: (15 - 5) / 45 of the way from 2 to 3 W.
    assert net.parts["extent"].standard_j == pytest.approx((2.0 - 0.5 * (2 + 10 / 45)) / math.sqrt(3))
    assert net.parts["noise"].standard_j == pytest.approx(0.05)
    assert net.parts["loss"].standard_j == pytest.approx(0.07)
    of_idle = baseline.idle_variance([work.energy])
    assert net.parts["baseline"].standard_j == pytest.approx(2 * math.sqrt(of_idle.w2))
    assert net.parts["baseline"].dof == of_idle.dof
    assert set(net.parts) == {"instrument", "clock", "extent", "noise", "loss", "baseline"}
    whole = gross_energy([session])
    assert whole.value_j == pytest.approx(12.0)
    assert whole.parts["extent"].standard_j == pytest.approx(2.0 / math.sqrt(3))
    assert "baseline" not in whole.parts
    # A second window that ends at 32 s, where idle draws 2.6 W: 0.25 s beside it.
    second = split(30, 32, 3.0, 9.0, beside_s=0.25, beside_j=4.0)
    both = net_energy([MeasuredRecording((work, second), accuracy_of(), baseline)])
    beside = (2.0 - 0.5 * (2 + 10 / 45) + 4.0 - 0.25 * 2.6) / 2
    assert both.parts["extent"].standard_j == pytest.approx(beside / math.sqrt(3))


def test_slow_noise_is_in_the_noise_of_a_gross_energy() -> None:
    before = idle_of(0, 10, 2.0, medians=SHAKY)
    work = split(13, 15, 3.0, 9.0, noise_j=0.05)
    found = gross_energy([MeasuredRecording((work,), accuracy_of(), Baseline(before))])
    slow = Baseline(before).slow_noise_of([work.energy])
    assert slow.w2 > 0
    assert slow.dof is not None
    assert found.parts["noise"].standard_j == pytest.approx(2 * math.sqrt(0.025**2 + slow.w2))
    assert found.parts["noise"].dof == pytest.approx((0.025**2 + slow.w2) ** 2 * slow.dof / slow.w2**2)
    assert flicker([(13, 15), (0, 15)], (1, -1)) > 0
    several = (work, split(16, 22, 3.0, 9.0, noise_j=0.05))
    found = gross_energy([MeasuredRecording(several, accuracy_of(), Baseline(before))])
    slow = Baseline(before).slow_noise_of([one.energy for one in several])
    assert found.parts["noise"].standard_j == pytest.approx(
        4 * math.sqrt(slow.w2)
    )  # the windows' mean length
    assert "loss" not in found.parts


def test_no_power_is_a_number_too() -> None:
    nothing = measured(13, 15, 0.0, charge_c=0.0)
    idle = idle_of(0, 10, 0.0, charge_c=0.0)
    assert gross_energy([MeasuredRecording((nothing,), accuracy_of())]).value_j == 0.0
    assert idle_energy(Baseline(idle), nothing.energy)[0] == 0.0
    assert "extent" not in gross_energy([MeasuredRecording((nothing,), accuracy_of())]).parts


def notes_of(*recordings: MeasuredRecording, net: bool = False) -> tuple[str, ...]:
    return (net_energy if net else gross_energy)(list(recordings)).notes


FIRST, ONE = "instrument: first", "one window: how much another run would differ is not known"
NO_IDLE = "no idle interval: slow noise is left to the instrument's offset limit"
NO_DRIFT = "no idle interval after the work: a drift of idle power cannot be seen"
NO_STEP = "instrument: the step of its readings is not on record, so it is not in the interval"
ALIKE = "neighbouring windows resemble each other: repeat in separate recordings"


def test_notes_are_told_once_and_of_every_recording() -> None:
    work, noted = split(13, 15, 3.0, 9.0), split(13, 15, 3.0, 9.0, notes=("a gap", "a pause"))
    before, after = idle_of(0, 10, 2.0), idle_of(40, 60, 3.0)
    plain = MeasuredRecording((work,), accuracy_of())
    assert notes_of(plain) == (FIRST, ONE, NO_IDLE)
    lone, full = (MeasuredRecording((work,), accuracy_of(), Baseline(before, end)) for end in (None, after))
    assert notes_of(full) == notes_of(full, net=True) == notes_of(lone) == (FIRST, ONE)
    assert notes_of(lone, net=True) == (FIRST, ONE, NO_DRIFT)
    assert notes_of(full, plain) == (FIRST, NO_IDLE)
    assert notes_of(full, lone, net=True) == (FIRST, NO_DRIFT)
    assert notes_of(full, full, net=True) == (FIRST,)
    second = MeasuredRecording(
        (work, noted), accuracy_of(step_a=None, source="second"), Baseline(before, after), ("rounded", "cut")
    )
    said = (FIRST, "instrument: second", "rounded", "cut", NO_STEP, "a gap", "a pause")
    assert notes_of(full, second, second) == said


def test_a_net_energy_needs_every_baseline_and_every_window_valid() -> None:
    work, bad = split(13, 15, 3.0, 9.0), split(13, 15, 3.0, 9.0, problems=("lost", "late"), label="third")
    idle = Baseline(idle_of(0, 10, 2.0))
    with pytest.raises(DataQualityError, match="needs idle power"):
        net_energy(
            [MeasuredRecording((work,), accuracy_of(), idle), MeasuredRecording((work,), accuracy_of())]
        )
    with pytest.raises(DataQualityError, match="window 'third': lost; late"):
        gross_energy([MeasuredRecording((work, bad), accuracy_of())])
    with pytest.raises(DataQualityError, match="no window"):
        gross_energy([])


def test_resemblance_of_neighbours_by_hand() -> None:
    """The sum of neighbouring products over that of squares, against 1.96 / sqrt(n)."""
    assert not _resemble_neighbours(np.full(20, 3.0))
    ramp = np.arange(8.0)  # 26.25 / 42 = 0.625, and 1.96 / sqrt(8) = 0.693; of nine 40 / 60 and 0.653
    assert not _resemble_neighbours(ramp)
    assert _resemble_neighbours(np.arange(9.0))
    blocks = np.repeat([0.0, 1.0], 4)  # seven products of 1/4, one of them negative: 5 / 8 of eight
    assert not _resemble_neighbours(blocks)
    assert _resemble_neighbours(np.repeat([0.0, 1.0], 5))  # 7 / 10 above 0.62
    assert not _resemble_neighbours(np.repeat([0.0, 1.0], 5)[[0, 5, 1, 6, 2, 7, 3, 8, 4, 9]])
    # As alike as eight can be: half a wave.
    assert _resemble_neighbours(np.array([30.0, 46, 41, 16, -16, -41, -46, -30]))
    assert not _resemble_neighbours(np.array([35.0, 50, 35, 0, -35, -50, -35]))
    assert not _resemble_neighbours(np.array([3.0]))
    assert ALIKE in notes_of(
        MeasuredRecording(tuple(split(i, i + 1, 1.0, float(i)) for i in range(9)), accuracy_of())
    )
    several = [
        MeasuredRecording((split(i, i + 1, 1.0, float(i)),), accuracy_of()) for i in range(9)
    ]  # fmt: skip
    assert ALIKE not in notes_of(*several)
