"""What no trace explains, and what a server does not know: against plain Python, number by number."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emulator.fleet.hashed import hashed, normals, stream_key, uniforms
from emulator.fleet.variation import Registration, Variation, autoregression
from emulator.fleet.world import World
from emulator.round.engine import Engine
from emulator.runs.assembly import assemble
from emulator.scenario.load import load_scenario
from emulator.scenario.model import FleetSection, VariationSection
from joulefleet.config import validate
from joulefleet.errors import ConfigError
from power.profile.model import PublishedSpread
from power.profile.quantity import Quantity
from power.reference import reference_facts
from tests.emulator import plain_hash
from tests.emulator.worlds import Prober, engine, fleet, play, profile, world

HOUR_NS = 3600 * 10**9


class Registered(Prober):
    """Also reads what is known at registration."""

    needs = Prober.needs | {"capability_s"}


def test_hashes_are_those_of_plain_integers() -> None:
    key = stream_key(3, "a", 1)
    assert int(key) == plain_hash.key(3, "a", 1)
    names = np.array([0, 1, -1, 2**40, -(2**62), 7])
    many = hashed(key, names[:, None], names)
    for i, one in enumerate(names.tolist()):
        for j, other in enumerate(names.tolist()):
            assert int(many[i, j]) == plain_hash.hashed(int(key), one, other)
    # One number alone is no array to numpy, and warns where an array does not.
    assert int(hashed(key, 7, -1)) == plain_hash.hashed(int(key), 7, -1)
    np.testing.assert_allclose(normals(key, names), [plain_hash.normal(int(key), n) for n in names.tolist()])
    many_u = uniforms(key, np.arange(100_000))
    assert 0 < many_u.min() < 1e-4 < 1 - 1e-4 < many_u.max() < 1
    assert normals(key, np.arange(100_000)).std() == pytest.approx(1.0, abs=0.01)


def plain_autoregression(seed: int, of: str, t_ns: int, device: int, correlation_s: float) -> float:
    """The recursion itself, from far in the past."""
    step_ns = correlation_s * 1e9 / 2
    offset = plain_hash.uniform(plain_hash.key(seed, "variation steps", of), device)
    number = math.floor(t_ns / step_ns + offset)
    r = math.exp(-0.5)
    x = 0.0
    for n in range(number - 100, number + 1):
        x = r * x + math.sqrt(1 - r * r) * plain_hash.normal(plain_hash.key(seed, "variation", of), device, n)
    return x


def test_the_autoregression_is_that_of_its_recursion() -> None:
    devices = np.array([5, 0, 99_999, 5])
    for t_ns in (0, HOUR_NS, 100 * HOUR_NS + 17):
        found = autoregression(4, "time", t_ns, devices, 7200.0)
        plain = [plain_autoregression(4, "time", t_ns, d, 7200.0) for d in devices.tolist()]
        np.testing.assert_allclose(found, plain, atol=1e-6)


def test_values_are_normal_and_forget_as_they_should() -> None:
    """Over many devices: mean 0, spread 1, correlation exp(-t / tau), linear within a step of half a tau."""
    devices, tau_s = np.arange(40_000), 7200.0
    now = autoregression(0, "time", 10 * HOUR_NS, devices, tau_s)
    assert now.mean() == pytest.approx(0.0, abs=0.02)
    assert now.std() == pytest.approx(1.0, abs=0.02)
    within = (1 + math.exp(-0.5)) / 2
    for lag, expected in ((0.5, math.exp(-0.5)), (1.0, math.exp(-1)), (3.0, math.exp(-3)), (0.25, within)):
        later = autoregression(0, "time", 10 * HOUR_NS + round(lag * tau_s * 1e9), devices, tau_s)
        assert np.corrcoef(now, later)[0, 1] == pytest.approx(expected, abs=0.02)
    other = autoregression(0, "power", 10 * HOUR_NS, devices, tau_s)
    assert np.corrcoef(now, other)[0, 1] == pytest.approx(0.0, abs=0.02)
    np.testing.assert_array_equal(
        autoregression(0, "time", 10 * HOUR_NS, devices[123:456], tau_s), now[123:456]
    )


def moving(time: float = 0.2, power: float = 0.1, **options: Any) -> World:
    state = fleet([profile(curve=())], [100] * 10, **options)
    return replace(world(state), variation=Variation(state, np.array([time]), np.array([power]), 7200.0, 11))


def test_time_and_power_move_apart() -> None:
    """A hot phone is slow and draws more, but no source says how much together: they are drawn apart."""
    many = np.arange(4000)
    alike = fleet([profile()], sizes=[10] * 4000)
    time, power = Variation(alike, np.array([0.1]), np.array([0.1]), 7200.0, 0).factors(HOUR_NS, many)
    assert abs(np.corrcoef(np.log(time), np.log(power))[0, 1]) < 0.06


@pytest.mark.parametrize("energy", ["marginal", "gross"])
def test_a_round_takes_what_the_factors_of_its_beginning_say(energy: str) -> None:
    there = moving(energy=energy)
    e = engine(Prober(), place=there, every_s=5400.0, rounds=6)
    base_w = float(there.fleet.costs.base_w[0])
    for one in play(e):
        time, power = there.computing(one.start_ns, one.clients)
        plain_s, plain_j = there.fleet.first_epoch(one.clients)
        np.testing.assert_allclose(one.cost.probe_s, plain_s * time, rtol=1e-8)
        own_j = (plain_j - base_w * plain_s) * time * power
        np.testing.assert_allclose(one.cost.probe_j, own_j + base_w * plain_s * time, rtol=1e-8)
        chosen = one.chosen
        np.testing.assert_allclose(one.cost.train_s[chosen], 4 * plain_s[chosen] * time[chosen], rtol=1e-8)
    assert base_w == 0.0  # a profile without a curve is charged as one piece


def test_zero_switches_it_off_and_a_run_goes_on_where_it_stopped() -> None:
    still, never = engine(place=moving(0.0, 0.0)), engine(place=replace(moving(), variation=None))
    assert [o.costs for o in play(still)] == [o.costs for o in play(never)]
    whole = [o.costs for o in play(engine(place=moving(), every_s=900.0))]
    first = engine(place=moving(), every_s=900.0)
    begun = [first.play().costs for _ in range(2)]
    rest = engine(place=moving(), every_s=900.0)
    rest.load_state_dict(first.state_dict())
    assert [*begun, *(o.costs for o in play(rest))] == whole


def test_what_is_known_at_registration_errs_by_kind_and_by_unit() -> None:
    state = fleet([profile(2.0), profile(6.0)], [100] * 400)
    errs = Registration(state, np.array([0.4, 0.1]), np.array([0.05, 0.2]), 3)
    e = engine(Registered(), place=replace(world(state), registration=errs), devices=400)
    known = e.open_round().view.capability_s
    keys = [plain_hash.key(3, "registration", part) for part in ("kind", "unit")]
    for device in (0, 1, 57, 399):
        kind = int(state.profile[device])
        error = (0.4, 0.1)[kind] * plain_hash.normal(keys[0], kind)
        error += (0.05, 0.2)[kind] * plain_hash.normal(keys[1], device)
        assert known[device] == pytest.approx((2.0, 6.0)[kind] * math.exp(error))
    logs = np.log(known / np.array([2.0, 6.0])[state.profile])
    assert logs[state.profile == 1].std() == pytest.approx(0.2, rel=0.2)
    exact = engine(Registered(), place=world(state), devices=400)
    np.testing.assert_array_equal(exact.open_round().view.capability_s, state.epoch(np.arange(400))[0])


def played(**settings: Any) -> Engine:
    quick = load_scenario("quick")
    scenario = quick.model_copy(update={"fleet": FleetSection(**{**quick.fleet.model_dump(), **settings})})
    assembly = assemble(scenario, 0)
    assembly.engine.trainer.close()
    return assembly.engine


def test_the_reference_fleet_varies_as_its_facts_say_and_numbers_win() -> None:
    facts = reference_facts()
    there = played().world
    assert there.variation is not None
    assert there.registration is not None
    assert set(there.variation.time_log_sd) == {facts.variation.time_log_sd}
    assert set(there.registration.kind_log_sd) == {facts.speed.device_log_sd}
    assert there.registration.unit_log_sd.max() == pytest.approx(0.1939)
    given = played(
        variation={"time": 0.3, "power": 0.0, "correlation_s": "1 h"}, registration_error=0.5
    ).world
    assert given.variation is not None
    assert given.registration is not None
    assert set(given.variation.time_log_sd) == {0.3}
    assert not given.variation.power_log_sd.any()
    assert given.variation.correlation_s == 3600.0
    assert set(given.registration.unit_log_sd) == {0.5}
    assert not given.registration.kind_log_sd.any()
    off = played(variation={"time": 0, "power": 0}, registration_error=0).world
    assert off.variation is off.registration is None


def test_a_measured_profile_varies_as_its_sessions_did() -> None:
    epoch = profile(2.0, 3.0).epoch.model_copy(
        update={
            "duration_s": Quantity(mean=2.0, session_sd=0.06, session_sd_from="measured"),
            "marginal_j": Quantity(mean=3.0, session_sd=0.15, session_sd_from="measured"),
        }
    )
    measured, unknown = profile(epoch=epoch), profile()
    stated = profile(
        published=PublishedSpread(
            cores="equal", time_log_sd=0.1, power_log_sd=0.2, class_log_sd=0.3, unit_log_sd=0.4
        )
    )
    spreads = fleet([measured, unknown, stated], [100] * 3).costs.spreads
    np.testing.assert_allclose(spreads.time, [0.03, 0.0, 0.1])
    np.testing.assert_allclose(spreads.power, [0.04, 0.0, 0.2])
    np.testing.assert_allclose(spreads.kind, [0.0, 0.0, 0.3])
    np.testing.assert_allclose(spreads.unit, [0.03, 0.0, 0.4])
    assert spreads.cores.tolist() == [-1, -1, 1]


@pytest.mark.parametrize("wrong", [{"time": -0.1}, {"power": "much"}, {"correlation_s": 0}, {"time": 3}])
def test_settings_that_are_none_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        validate(wrong, VariationSection, name="x")
