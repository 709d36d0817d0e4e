"""Training beside apps as published: against plain Python, use by use; and what keeps its own curve."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from emulator.fleet.conditions import Replayed
from emulator.fleet.interference import BackgroundGroup, Published
from emulator.fleet.slowdown import Computation, compute
from emulator.fleet.world import World
from emulator.runs.assembly import assemble
from emulator.scenario.load import load_scenario
from emulator.scenario.model import FleetSection, InterferenceSection, RewardSection, Scenario
from emulator.selectors.oracles import SpeedOracle
from power.profile.model import DeviceProfile, PublishedSpread
from power.reference import reference_facts, reference_fleet
from tests.emulator import plain_hash
from tests.emulator.worlds import SECOND_NS, engine, fleet, profile, spans, user, world
from traces.model import AppSessions, Fact, InteractionTrace
from traces.replay import DAY_NS, FleetRecipe, TraceFleet, flatten

FACTS = reference_facts().interference
NAMES = ("video", "game", "reading", "weird")
SEED = 7


def person(name: str, sessions: list[tuple[int, int, int]]) -> InteractionTrace:
    """A day with app sessions as (from, to, number of the app), and a charger that comes and goes in them."""
    times = spans([(a, b) for a, b, _ in sessions])
    return replace(
        user(name, charging=[(a + 5, a + 8) for a, _, _ in sessions]),
        screen=Fact(times),
        apps=AppSessions(
            times.start_ns, times.end_ns, np.array([app for _, _, app in sessions], np.int32), NAMES, NAMES
        ),
    )


PEOPLE = [
    person("a", [(0, 30, 0), (40, 90, 1), (90, 120, 2), (200, 86_400, 1)]),
    person("b", [(10, 20, 3), (20, 50, 3), (50, 60, 0), (300, 4000, 2)]),
]


def published(cores: str = "big_little") -> DeviceProfile:
    spread = PublishedSpread(cores=cores, time_log_sd=0, power_log_sd=0, class_log_sd=0, unit_log_sd=0)
    return profile(published=spread)


def place(
    group: BackgroundGroup = BackgroundGroup.IN_USE,
    profiles: tuple[DeviceProfile, ...] = (published(), published("equal")),
    devices: int = 40,
) -> World:
    recipe = FleetRecipe(devices=devices, seed=1, align_ns=DAY_NS)
    traces = TraceFleet.from_recipe(flatten(PEOPLE), recipe)
    conditions = Replayed(traces, "recorded", by_use=True)
    state = fleet(profiles, [100] * devices)
    there = world(state, conditions)
    apps = Published(state.costs, FACTS, conditions.app_categories, group, SEED)
    return replace(there, apps=apps)


def plain_use(there: World, device: int, t_ns: int) -> tuple[int, str] | None:
    """When the use at a time began, and the app's category; looked up in the recording by hand."""
    traces: TraceFleet = there.conditions.traces  # type: ignore[attr-defined]
    person = PEOPLE[traces.map.user[device]]
    x_ns = (t_ns + int(traces.map.phase_ns[device])) % DAY_NS
    assert person.apps is not None
    sessions = list(zip(person.apps.start_ns, person.apps.end_ns, person.apps.app, strict=True))
    for begin, end, app in sessions:
        if begin <= x_ns < end:
            before = [start for start, stop, other in sessions if stop == begin and other == app]
            return int(before[0] if before else begin) + t_ns - x_ns, NAMES[app]
    return None


def plain_factors(there: World, device: int, t_ns: int, group: BackgroundGroup) -> tuple[float, float]:
    cores = ("big_little", "equal")[there.fleet.profile[device]]
    background = FACTS.background.slowdown, FACTS.background.energy_factor
    if cores == "equal" or group is BackgroundGroup.NEVER:
        background = 1.0, 1.0
    use = plain_use(there, device, t_ns)
    if use is None:
        return background if group is BackgroundGroup.ALWAYS else (1.0, 1.0)
    began_ns, category = use
    phones = [phone for phone in FACTS.phones if phone.cores == cores and phone.idle_w is not None]
    apps = FACTS.classes[FACTS.categories.get(category, FACTS.otherwise)]
    phone = phones[plain_hash.hashed(plain_hash.key(SEED, "interference", "phone"), device) % 2 % len(phones)]
    drawn = plain_hash.hashed(plain_hash.key(SEED, "interference", "app"), device, began_ns) % 8 % len(apps)
    found = phone.factors(apps[drawn])
    assert found is not None
    return found[0] * background[0], found[1] * background[1]


def test_the_published_factors() -> None:
    """The medians and ranges that the paper's table gives, and the core choice of the other one."""
    slow = {p.device: sorted(both[2] / p.alone_s for both in p.beside.values()) for p in FACTS.phones}
    medians = {device: (times[3] + times[4]) / 2 for device, times in slow.items()}
    expected = {"Nexus 6": 1.42, "Nexus 6P": 1.47, "HiKey 970": 0.98, "Pixel 2": 0.92}
    assert medians == pytest.approx(expected, abs=0.01)
    assert max(slow["Nexus 6"]) == pytest.approx(4.89, abs=0.01)
    assert (FACTS.background.slowdown, FACTS.background.energy_factor) == pytest.approx(
        (6.65, 1.42), abs=0.01
    )
    pixel = next(phone for phone in FACTS.phones if phone.device == "Pixel 2")
    factors = [pixel.factors(app) for app in pixel.beside]
    energies = [found[1] for found in factors if found]
    assert (min(energies), max(energies)) == pytest.approx((0.04, 0.80), abs=0.01)
    assert next(p for p in FACTS.phones if p.device == "HiKey 970").factors("Map") is None


@pytest.mark.parametrize("group", list(BackgroundGroup))
def test_work_beside_apps_against_every_moment(group: BackgroundGroup) -> None:
    there = place(group)
    devices = np.arange(40)
    start_ns = np.random.default_rng(0).integers(0, 3 * 86_400, 40) * SECOND_NS
    start_ns[:10] %= 400 * SECOND_NS
    costs = there.fleet.costs
    work = Computation(devices, there.fleet.profile, np.full(40, 60.0), np.full(40, 30.0), np.zeros(40))
    found = compute(work, start_ns, np.full(40, 10**17), there.conditions, there.slowing)
    assert found.completed.all()
    for device in devices:
        now_ns, done_s, spent_j, loaded_s = int(start_ns[device]), 0.0, 0.0, 0.0
        while done_s < 60.0 - 1e-9:  # every change is at a whole second
            slow, factor = plain_factors(there, device, now_ns, group)
            share_s = min((10**9 - now_ns % 10**9) * 1e-9, (60.0 - done_s) * slow)
            spent_j += share_s / slow * factor * 0.5
            loaded_s += share_s if plain_use(there, device, now_ns) else 0.0
            done_s, now_ns = done_s + share_s / slow, now_ns + round(share_s * 1e9)
        assert found.end_ns[device] == pytest.approx(now_ns, abs=1e4)
        assert found.total_j[device] == pytest.approx(spent_j, rel=1e-6)
        assert found.loaded_s is not None
        assert found.loaded_s[device] == pytest.approx(loaded_s, rel=1e-6, abs=1e-6)
    assert (costs.spreads.cores >= 0).all()
    assert (found.end_ns - start_ns <= 60e9 * there.slowing.worst(there.fleet.profile) + 2).all()


def test_a_use_is_the_same_wherever_and_in_whatever_company_it_is_asked_about() -> None:
    there = place()
    everybody = np.arange(40)
    for t_s in (45, 86_400 + 100, 20 * 86_400 + 3000):
        at_ns = np.full(40, t_s * SECOND_NS)
        now = there.conditions.segments(at_ns, at_ns + 1, everybody)
        together = there.slowing.factors(there.fleet.profile, everybody, now)
        for device in (39, 3, 17):
            alone = np.array([device])
            wide = there.conditions.segments(at_ns[:1] - 7 * SECOND_NS, at_ns[:1] + 90 * SECOND_NS, alone)
            (place_,) = np.flatnonzero((wide.start_ns <= at_ns[0]) & (at_ns[0] < wide.end_ns))
            many = np.full(len(wide.cpu), device)
            parts = there.slowing.factors(there.fleet.profile[many], many, wide)
            assert [part[place_] for part in parts] == [whole[device] for whole in together]
        assert any(a != b for a, b in pairwise(together[0]))


def test_a_profile_from_the_bench_keeps_its_own_curve() -> None:
    measured = profile(curve=[(0.0, 1.0, 1.0), (1.0, 9.0, 2.0)])
    mixed = place(profiles=(published(), measured))
    own = replace(mixed, apps=None)
    everybody, at_ns = np.arange(40), np.full(40, 45 * SECOND_NS)
    now = mixed.conditions.segments(at_ns, at_ns + 1, everybody)
    ours = mixed.fleet.profile == 1
    for with_published, alone in zip(
        mixed.slowing.factors(mixed.fleet.profile, everybody, now),
        own.slowing.factors(mixed.fleet.profile, everybody, now),
        strict=True,
    ):
        np.testing.assert_array_equal(with_published[ours], alone[ours])
        assert (with_published[~ours] != alone[~ours]).any()


def test_an_oracle_knows_what_an_epoch_takes_beside_the_app() -> None:
    there = place()
    e = engine(SpeedOracle(), place=there, devices=40, k=1, candidates=40, local_epochs=1)
    opened = e.open_round()
    plain = [plain_factors(there, d, 0, BackgroundGroup.IN_USE)[0] for d in range(40)]
    np.testing.assert_allclose(opened.view.true_epoch_s, there.fleet.epoch(np.arange(40))[0] * plain)


def test_the_reference_fleet_says_which_measurements_apply() -> None:
    cores = {p.device: p.published.cores for p in reference_fleet("mnist-lenet5") if p.published}
    assert len(cores) == 34
    assert sum(kind == "equal" for kind in cores.values()) == 5
    assert cores["Google Pixel 6"] == "big_little"


def test_the_old_model_is_there_for_whoever_asks() -> None:
    quick = load_scenario("quick")
    older = InterferenceSection(model="fair_share")
    before = quick.model_copy(update={"fleet": quick.fleet.model_copy(update={"interference": older})})
    for scenario, model in ((quick, Published), (before, type(None))):
        assembly = assemble(scenario, 0)
        assembly.engine.trainer.close()
        assert isinstance(assembly.engine.world.apps, model)


def test_a_record_of_before_keeps_its_meaning_and_its_hash() -> None:
    """Stored records tell every key; a file that somebody writes has the defaults of today."""
    stored = Scenario(name="a").model_dump(mode="json")
    for section, later in (("fleet", FleetSection.LATER), ("reward", RewardSection.LATER)):
        for name in later:
            del stored[section][name]
    read = Scenario.model_validate(stored)
    assert read.fleet.interference.model == "fair_share"
    assert read.fleet.variation.time == read.fleet.variation.power == read.fleet.registration_error == 0
    assert read.sha256() == "8058ac547d08ac6281237b5c2cfe30a1c493798125a368c5a0256a38749c140f"
    assert Scenario(name="a").fleet.interference.model == "literature"
    assert Scenario(name="a").sha256() != read.sha256()
