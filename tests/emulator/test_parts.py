"""Parts of a fleet: worked out a few devices at a time, taken out of it, or with nobody in them."""

from dataclasses import replace

import numpy as np
import pytest

from emulator.fleet.batteries import Batteries
from emulator.fleet.hashed import normals, stream_key, uniforms
from emulator.fleet.network import TransferSource
from emulator.fleet.variation import Registration, Variation, autoregression
from emulator.round.budgets import lone_rounds
from emulator.round.outcome import COSTS, Accounting, ClientCost, Reports, RoundCost, RoundOutcome
from power.profile.model import Battery
from tests.emulator.worlds import SECOND_NS, fleet, profile, replay, user, world

FIVE = np.arange(5)
SDS = np.array([0.0, 0.5])


def outcome(n: int) -> RoundOutcome:
    values = np.ones(n)
    reports = Reports(*[values] * 7)
    cost = ClientCost(**dict.fromkeys(COSTS, values))
    every = dict.fromkeys(Accounting, RoundCost(1.0, 2.0))
    return RoundOutcome(
        1, 0, 5, np.arange(n), np.ones(n, bool), (), cost, reports, every, 0.5, 0.1, 1.0, loaded_s=values
    )


def test_how_long_a_device_was_loaded_is_no_business_of_a_selector() -> None:
    assert outcome(2).loaded_s is not None
    assert outcome(2).restricted(()).loaded_s is None


def test_of_nobody_nobody_failed() -> None:
    found = outcome(0).failed
    assert (found.dtype, len(found)) == (np.dtype(bool), 0)


def test_lone_rounds_a_few_devices_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.5 s and 0.25 J each way, three epochs of 2 s and 3 J per 100 samples; one has no data."""
    monkeypatch.setattr("emulator.round.budgets.CHUNK", 2)
    place = world(fleet([profile()], [100, 0, 200, 300, 400, 500]))
    found = lone_rounds(place, 3, 0)
    assert found.duration_s.tolist() == pytest.approx([7.0, 13.0, 19.0, 25.0, 31.0])
    assert found.energy_j.tolist() == pytest.approx([9.5, 18.5, 27.5, 36.5, 45.5])
    assert found.comm_s.tolist() == [1.0] * 5
    assert found.comm_j.tolist() == [0.5] * 5
    assert lone_rounds(place, 1, 0, np.array([5, 1])).duration_s.tolist() == [11.0, 1.0]


def test_a_part_keeps_the_transfers_of_its_devices_as_measured_and_as_recorded() -> None:
    """A model of 1 MB: 1, 2 and 4 s as measured, at half a watt; 1, 2 and 4 Mbit/s down, twice that up."""
    phones = [profile(device=f"d{i}", transfer_s=s) for i, s in enumerate((1.0, 2.0, 4.0))]
    people = [user(n, rates=[(0, r * 1e6, 2 * r * 1e6)]) for n, r in {"a": 1, "b": 2, "c": 4}.items()]
    state = fleet(phones, [100] * 3)
    measured = np.array([1.0, 2.0, 4.0])[state.profile]
    for devices in (np.array([2]), np.array([0, 2]), np.array([1, 2])):
        now_ns, some = np.zeros(len(devices), np.int64), np.arange(len(devices))
        part = world(state, replay(people)).some(devices)
        assert part.network.download(now_ns, some).duration_s.tolist() == measured[devices].tolist()
        assert part.network.upload(now_ns, some).energy_j.tolist() == (measured[devices] / 2).tolist()
        traced = world(state, replay(people), link=TransferSource.TRACE, model_bytes=1_000_000).some(devices)
        recorded = 8 / np.array([1.0, 2.0, 4.0])[devices]
        assert traced.network.download(now_ns, some).duration_s.tolist() == pytest.approx(recorded.tolist())
        assert traced.network.upload(now_ns, some).duration_s.tolist() == pytest.approx(
            (recorded / 2).tolist()
        )
        # Its radio draws what it drew on the bench.
        assert traced.network.upload(now_ns, some).energy_j.tolist() == pytest.approx((recorded / 4).tolist())


def test_batteries_a_few_devices_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at when its debts change: the second and the last one of five have nothing left."""
    monkeypatch.setattr("emulator.fleet.batteries.CHUNK", 2)
    people = [user(n, battery=[(0, 0.5), (86_400, 0.5)], charging=[]) for n in "abcde"]
    cells = Batteries(
        fleet([profile(battery=Battery(capacity_j=100, charge_w=5))], [100] * 5), replay(people)
    )
    cells.set_debts(FIVE, np.array([10.0, 50.0, 20.0, 30.0, 60.0]), np.zeros(5, np.int64), np.zeros(5, bool))
    assert cells.switched_off(SECOND_NS, np.ones(5, bool)).tolist() == [1, 4]


def varied(devices: int = 5) -> tuple[Variation, Registration]:
    state = fleet([profile(device="calm"), profile(device="wild")], [100] * devices)
    return Variation(state, SDS, SDS / 5, 3600.0, 7), Registration(state, SDS / 2, SDS, 7)


def test_variation_a_few_devices_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    variation, registration = varied()
    alone = [np.array([i]) for i in FIVE]
    factors = [variation.factors(SECOND_NS, one) for one in alone]
    errors = [registration.factors(one)[0] for one in alone]
    calm = variation.fleet.profile == 0
    assert [time[0] == 1.0 for time, _ in factors] == calm.tolist() == [error == 1.0 for error in errors]
    monkeypatch.setattr("emulator.fleet.variation.CHUNK", 2)
    time, power = variation.factors(SECOND_NS, FIVE)
    assert time.tolist() == [one[0] for one, _ in factors]
    assert power.tolist() == [one[0] for _, one in factors]
    assert registration.factors(FIVE).tolist() == errors
    assert [len(part) for part in variation.factors(0, FIVE[:0])] == [0, 0]


def test_a_part_of_a_world_varies_as_its_own_profiles_do() -> None:
    """The devices are told in another order: whoever has the calm profile keeps it."""
    variation, registration = varied()
    place = replace(world(variation.fleet), variation=variation, registration=registration)
    some = place.some(FIVE[::-1])
    calm = variation.fleet.profile[::-1] == 0
    assert 0 < calm.sum() < 5
    assert (some.computing(SECOND_NS, FIVE)[0] == 1.0).tolist() == calm.tolist()
    assert some.registration is not None
    assert (some.registration.factors(FIVE) == 1.0).tolist() == calm.tolist()
    assert [part.tolist() for part in world(variation.fleet).computing(0, FIVE[:2])] == [[1.0, 1.0]] * 2


def test_the_autoregression_has_33_terms() -> None:
    """The next would be 1e-7 of the first."""
    found = autoregression(3, "time", 12_345 * SECOND_NS, FIVE, 600.0)
    step = uniforms(stream_key(3, "variation steps", "time"), FIVE) + 12_345 / 300
    r, expected = np.exp(-0.5), np.zeros(5)
    for j in range(33):
        drawn = normals(stream_key(3, "variation", "time"), FIVE, np.floor(step).astype(np.int64) - j)
        expected += np.sqrt(1 - r * r) * r**j * drawn
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
