"""Two profiles side by side, by hand: what each half width is made of, and where a limit lies exactly."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.profiles.difference import QuantityChange, Side, compare_profiles, pair_profiles
from joulefleet.provenance import Instrument, Origin, Provenance, SourceRef
from power.profile import Quantity
from power.profile.model import Thermal
from tests.harness.by_hand.test_scaled import profile

Z = 1.959964
T95 = {1: 12.706205, 2: 4.302653, 3: 3.182446, 4: 2.776445, 7: 2.364624, 8: 2.306004}
"""Student's factors as tables have them."""


def of(mean: float = 10.0, half: float | None = 0.5, **facts: Any) -> Quantity:
    return Quantity(mean=mean, half_width_95=half, **facts)


def widths(quantity: Quantity, between_sessions: float = 0.0) -> tuple[float, float, float]:
    found = Side.of(quantity, between_sessions)
    assert found is not None
    assert found.quantity is quantity
    return found.unit, found.repeated, found.fixed


def near(*values: float) -> Any:
    return pytest.approx(values, rel=1e-6, abs=1e-12)


def test_what_is_left_of_rounding_is_no_change_and_a_millionth_is_one() -> None:
    for after, said in ((1 + 1e-9, "+0 %"), (1 - 1e-9, "+0 %"), (1 + 1e-6, "+0.0001 %"), (0.8, "-20 %")):
        assert QuantityChange("x", of(1.0, None), of(after, None)).percent_text() == said


def test_one_session_has_repetitions_an_instrument_and_a_rest() -> None:
    quantity = of(n=4, sd=0.2, sessions=1, instrument_half_width_95=0.3)
    repeated = T95[3] * 0.2 / 2
    rest = math.sqrt(0.25 - 0.09 - repeated**2) / 10
    assert widths(quantity) == near(0.03, repeated / 10, rest)
    assert widths(quantity, 0.02) == near(0.03, repeated / 10, math.hypot(rest, Z * 0.02))
    assert widths(quantity.model_copy(update={"sessions": None}), 0.02) == widths(quantity, 0.02)
    bare = quantity.model_copy(update={"instrument_half_width_95": None})
    assert widths(bare) == near(0.0, repeated / 10, math.sqrt(0.25 - repeated**2) / 10)


def test_two_sessions_cost_a_degree_of_freedom_and_share_a_stated_spread() -> None:
    quantity = of(n=5, sd=0.2, sessions=2)
    repeated = T95[3] * 0.2 / math.sqrt(5)
    rest = math.sqrt(0.25 - repeated**2) / 10
    assert widths(quantity, 0.03) == near(0.0, repeated / 10, math.hypot(rest, Z * 0.03 / math.sqrt(2)))


def test_three_sessions_are_what_is_repeated() -> None:
    """Of 4 each: 0.3^2 between them, and 0.2^2 / 4 of what each mean of four is off."""
    quantity = of(half=1.0, n=12, sd=0.2, sessions=3, session_sd=0.3, instrument_half_width_95=0.3)
    repeated = T95[2] * math.sqrt(0.1 / 3)
    expected = near(0.03, repeated / 10, math.sqrt(1 - 0.09 - repeated**2) / 10)
    assert widths(quantity) == expected
    assert widths(quantity, 0.5) == expected, "what was measured is not stated besides"
    alone = of(half=1.0, n=3, sessions=3, session_sd=0.3, session_sd_from="measured")
    assert widths(alone)[1] == pytest.approx(T95[2] * 0.3 / math.sqrt(3) / 10, rel=1e-6)
    alike = of(half=1.0, n=12, sd=0.2, sessions=3)
    assert widths(alike)[1] == pytest.approx(T95[2] * math.sqrt(0.01 / 3) / 10, rel=1e-6)
    uncounted = of(half=2.0, sd=0.2, sessions=3)
    assert widths(uncounted)[1] == pytest.approx(T95[2] * math.sqrt(0.12 / 3) / 10, rel=1e-6)


def test_no_part_is_wider_than_the_whole() -> None:
    assert widths(of(n=4, sd=0.2, instrument_half_width_95=0.9)) == near(0.05, 0.0, 0.0)
    assert widths(of(n=4, sd=3.0, instrument_half_width_95=0.3)) == near(0.03, 0.04, 0.0)


def test_repetitions_without_freedom_show_nothing() -> None:
    assert widths(of(n=2, sd=0.2, sessions=2))[1] == 0.0
    assert widths(of(n=1, sd=0.2))[1] == 0.0
    assert widths(of(half=2.0, n=2, sd=0.2))[1] == pytest.approx(T95[1] * 0.2 / math.sqrt(2) / 10, rel=1e-6)


def test_where_a_ratio_has_no_interval() -> None:
    sure = {"n": 4, "sd": 0.2}
    assert Side.of(of(0.5, 0.5, **sure)) is None, "down to zero"
    assert widths(of(0.5, 0.25, **sure))[0] == 0.0
    assert Side.of(of(0.0, None, factor_95=2.0)) is None
    assert widths(of(0.5, None, factor_95=2.0)) == near(0.0, 0.0, math.log(2.0))
    assert Side.of(of(half=None, **sure)) is None
    assert Side.of(of(n=3)) is None, "one window"
    assert Side.of(of(n=3, sessions=3, session_sd=0.1, session_sd_from="stated")) is None


def test_more_repetitions_of_each_kind() -> None:
    def after(count: int, **facts: Any) -> float:
        side = Side.of(of(half=2.0, sd=0.2, **facts))
        assert side is not None
        return side.with_repetitions(count)

    assert after(9, n=4) == pytest.approx(T95[8] * 0.2 / 3 / 10, rel=1e-6)
    assert after(9, n=4, sessions=2) == pytest.approx(T95[7] * 0.2 / 3 / 10, rel=1e-6)
    many = after(5, n=12, sessions=3, session_sd=0.3)
    assert many == pytest.approx(T95[4] * math.sqrt(0.1 / 5) / 10, rel=1e-6)


def exactly(mean: float) -> Quantity:
    """Three times the same."""
    return of(mean, 0.0, n=3, sd=0.0)


def test_a_ratio_is_of_positive_means() -> None:
    assert QuantityChange("x", exactly(0.5), exactly(0.75)).ratio.mean == 1.5
    for before, after in ((0.0, 1.0), (1.0, 0.0), (-2.0, -1.0)):
        ratio = QuantityChange("x", exactly(before), exactly(after)).ratio
        assert math.isnan(ratio.mean)
        assert not ratio.known


def test_limits_are_met_exactly() -> None:
    same, more = (QuantityChange("x", exactly(4.0), exactly(mean)) for mean in (4.0, 5.0))
    assert (same.clear, more.clear) == (False, True)
    assert QuantityChange("x", exactly(1.0), exactly(2.0)).clear
    assert more.exceeds(0.25) is False, "at the limit is not beyond it"
    assert (more.exceeds(0.2), more.exceeds(0.3)) == (True, False)
    unknown = QuantityChange("x", of(n=1), of(n=1))
    assert (unknown.clear, unknown.sides, unknown.exceeds(-0.5), unknown.exceeds(9.0)) == (
        False,
        None,
        None,
        None,
    )


def test_one_side_alone_makes_the_interval_unknown() -> None:
    for sides in ((of(n=1), exactly(10.0)), (exactly(10.0), of(n=1))):
        change = QuantityChange("x", *sides)
        assert change.sides is None
        assert (change.ratio.mean, change.ratio.known) == (1.0, False)


def test_sessions_of_both_sides_have_to_be_known() -> None:
    known = of(half=1.0, n=12, sd=0.2, sessions=3, session_sd=0.3)
    assert not QuantityChange("x", known, known).sessions_unknown
    for sides in ((known, exactly(1.0)), (exactly(1.0), known)):
        assert QuantityChange("x", *sides).sessions_unknown
        assert not QuantityChange("x", *sides, between_sessions=0.01).sessions_unknown


def test_units_of_different_error() -> None:
    before = of(n=3, sd=0.0, instrument_half_width_95=0.5)
    after = of(20.0, 0.4, n=3, sd=0.0, instrument_half_width_95=0.4)
    apart, together = (QuantityChange("x", before, after, same_unit=same).ratio for same in (False, True))
    assert math.log(apart.high / 2.0) == pytest.approx(math.hypot(0.05, 0.02), rel=1e-9)
    assert math.log(together.high / 2.0) == pytest.approx(0.03, rel=1e-9)


def test_the_next_repetition_is_the_first_that_may_tell() -> None:
    change = QuantityChange("x", exactly(10.0), of(11.0, 1.0, n=4, sd=0.2))
    assert change.repetitions_needed(0.5) == 5
    sessions = QuantityChange(
        "x", exactly(10.0), of(11.0, 1.0, n=12, sessions=3, session_sd=0.1, session_sd_from="measured")
    )
    assert sessions.repetitions_needed(0.5) == 4
    assert QuantityChange("x", exactly(10.0), exactly(11.0)).repetitions_needed(0.5) is None
    assert QuantityChange("x", exactly(10.0), of(11.0, n=1)).repetitions_needed(0.5) is None
    # |ln(1.1 / 1.2)| = 0.0870, of which a unit's 0.05 leaves 0.0712: t 0.2 / sqrt(n) / 2.2 is 0.0760 for
    # eight of them and 0.0699 for nine.
    fixed = of(2.2, 0.33, n=4, sd=0.2, instrument_half_width_95=0.11)
    assert QuantityChange("x", exactly(2.0), fixed).repetitions_needed(0.2) == 9


@pytest.mark.parametrize(("share", "needed"), [(1 - 1e-5, 10_000), (1 + 2.5e-5, None)])
def test_beyond_ten_thousand_repetitions_is_no_advice(share: float, needed: int | None) -> None:
    """t(9999) = 1.960201: so large a scatter leaves the limit at the ten-thousandth, or just does not."""
    sd = share * math.log(1.10 / 1.05) * 100 / 1.9602012
    later = of(1.05, 0.03, n=9_990, sd=1.05 * sd)
    assert QuantityChange("x", exactly(1.0), later).repetitions_needed(0.10) == needed


def measured(**changes: Any) -> Provenance:
    instrument = Instrument(kind="monsoon-hvpm", serial="20001", firmware="25", emulated=False)
    fields: dict[str, Any] = {
        "origin": Origin.MEASURED,
        "instrument": instrument,
        "calibration_sha256": "c" * 64,
    }
    return Provenance(**{**fields, "sources": (SourceRef(id="c", sha256="a" * 64),), **changes})


def test_whether_one_unit_measured_both() -> None:
    here = measured()
    assert here.instrument is not None
    nameless = measured(instrument=here.instrument.model_copy(update={"serial": ""}))
    newer = measured(instrument=here.instrument.model_copy(update={"firmware": "26"}))
    other = measured(calibration_sha256="d" * 64)
    unknown = Provenance(origin=Origin.LITERATURE, basis="a paper", calibration_sha256="c" * 64)
    for one, two, same in (
        (here, here, True), (nameless, nameless, False), (unknown, unknown, False),
        (here, newer, False), (here, other, False), (unknown, here, False), (here, unknown, False),
    ):  # fmt: skip
        found = compare_profiles(profile(provenance=one), profile(provenance=two), between_sessions=0.02)
        assert {change.same_unit for change in found.changes} == {same}
        assert {change.between_sessions for change in found.changes} == {0.02}
    assert compare_profiles(profile(), profile()).changes[0].between_sessions == 0.0


def test_quantities_that_both_have_and_what_else_differs() -> None:
    before = profile(
        provenance=measured(), threads=2, wait_power_w=Quantity(mean=3.0), sessions=1, idle_power_w=None
    )
    after = profile(
        k=2.5, provenance=measured(calibration_sha256=None), threads=4, batch_size=64, epoch_cpu_s=None,
        thermal=Thermal(epochs_used=3, epochs_throttled=2, temperature_max_c=61.23456), sessions=3,
    )  # fmt: skip
    found = compare_profiles(before, after)
    assert (found.before, found.after) == (before, after)
    places = [f"{part}.{name}" for part in ("probe", "epoch", "round", "download", "upload")
              for name in ("duration_s", "gross_j", "net_j", "marginal_j")]  # fmt: skip
    assert [change.place for change in found.changes] == places
    energy = found.change("epoch.gross_j")
    assert energy is not None
    assert (energy.before.mean, energy.after.mean) == (10.0, 12.5)
    assert found.change("wait_power_w") is None
    assert found.other_work == ("batch size: 32, now 64", "threads: 2, now 4")
    assert found.other_conditions == (
        "calibration: cccccccccccc, now none",
        "sessions: 1, now 3",
        "throttled epochs: 0, now 2",
        "highest temperature (°C): not known, now 61.23",
    )


def test_instruments_are_named_as_far_as_they_are_known() -> None:
    paper = Provenance(origin=Origin.LITERATURE, basis="a paper")
    bare = measured(instrument=Instrument(kind="ina219", emulated=False))
    full, found = (
        measured(),
        compare_profiles(profile(provenance=paper, thermal=None), profile(provenance=bare)),
    )
    assert found.other_conditions == (
        "instrument: unknown, now ina219",
        "calibration: none, now cccccccccccc",
        "origin: literature, now measured",
        "throttled epochs: not known, now 0",
    )
    (said,) = compare_profiles(profile(provenance=bare), profile(provenance=full)).other_conditions
    assert said == "instrument: ina219, now monsoon-hvpm 20001 25"
    assert compare_profiles(profile(), profile()).other_conditions == ()


def test_profiles_pair_by_label_and_the_last_of_a_label_counts() -> None:
    gone, first, second, later, new = (
        profile(device=name, k=k)
        for name, k in (("gone", 1.0), ("both", 1.0), ("both", 2.0), ("both", 3.0), ("new", 1.0))
    )
    away, newer = profile(device="away"), profile(device="newer")
    found = pair_profiles([gone, first, away, second], [new, later, newer])
    assert found == ([(second, later)], [gone, away], [new, newer])
    assert pair_profiles([first, gone], [gone, later]) == ([(gone, gone), (first, later)], [], [])
