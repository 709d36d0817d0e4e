"""What must hold in every round, whatever happens in it: random worlds, random rules."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.round.engine import Engine
from emulator.round.outcome import Accounting, Fate, RoundOutcome
from emulator.round.reward import Budgets, signed
from emulator.round.rules import RewardRules, RoundRules
from emulator.round.selector import Probe
from emulator.selectors.fedavg import FedAvg
from emulator.training.surrogate import SurrogateTrainer
from joulefleet.errors import NobodyLeft
from power.profile.model import Battery
from tests.emulator.worlds import fleet, profile, replay, user, world

DEVICES = 6
STAGES = ("download", "probe", "wait", "train", "upload")


@st.composite
def pieces(draw: st.DrawFn, longest: int = 120) -> list[tuple[float, float]]:
    edges = sorted(draw(st.lists(st.integers(0, 10 * longest), max_size=12, unique=True)))
    return [(a / 10, b / 10) for a, b in zip(edges[::2], edges[1::2], strict=False)]


@st.composite
def people(draw: st.DrawFn) -> list:
    made = []
    for i in range(DEVICES):
        busy = [(a, b, draw(st.sampled_from([0.2, 0.5, 1.0]))) for a, b in draw(pieces())]
        level = draw(st.sampled_from([0.01, 0.05, 0.9]))
        battery = [(t, level) for t in range(0, 4000, 600)]
        made.append(user(f"u{i}", hours=1, busy=busy, charging=draw(pieces()), battery=battery))
    return made


@settings(max_examples=40, deadline=None)
@given(
    people(),
    st.sampled_from(["recorded", "charging", "not charging"]),
    st.sampled_from(list(Probe)),
    st.sampled_from([None, 4.0, 15.0]),
    st.sampled_from([None, 3.0]),
    st.sampled_from([1.0, 1.5]),
)
def test_every_round_adds_up(
    users: list,
    policy: str,
    probe: Probe,
    deadline_s: float | None,
    probe_deadline_s: float | None,
    over_commit: float,
) -> None:
    selector = type("Any", (FedAvg,), {"probe": probe, "needs": frozenset({"epoch_s", "loss"})})()
    sizes = np.full(DEVICES, 100)
    phones = [profile(), profile(1.0, 4.0, battery=Battery(capacity_j=200, charge_w=2))]
    place = world(fleet(phones, sizes, speed_spread=0.4), replay(users, policy))
    rules = RoundRules(
        rounds=5,
        k=2,
        candidates=4,
        local_epochs=3,
        deadline_s=deadline_s,
        probe_deadline_s=probe_deadline_s,
        over_commit=over_commit,
    )
    judging = RewardRules(signed, Budgets(time_s=5.0, energy_j=30.0))
    engine = Engine(place, SurrogateTrainer(sizes, 10, 0), selector, rules, judging, 0, classes=10)
    while not engine.done:
        before_ns = engine.clock_ns
        try:
            outcome = engine.play()
        except NobodyLeft:
            break
        check(outcome, engine, before_ns)


def check(outcome: RoundOutcome, engine: Engine, before_ns: int) -> None:
    cost, chosen, fates = outcome.cost, outcome.chosen, np.array(outcome.fates)
    assert outcome.start_ns == before_ns
    assert engine.clock_ns == outcome.start_ns + outcome.duration_ns
    honest, selected, free = (outcome.costs[a] for a in Accounting)
    seconds = sum(getattr(cost, f"{stage}_s") for stage in STAGES)
    joules = sum(getattr(cost, f"{stage}_j") for stage in STAGES)
    assert all((getattr(cost, f"{stage}_{unit}") >= 0).all() for stage in STAGES for unit in "sj")
    assert (seconds <= honest.time_s + 1e-6).all()
    np.testing.assert_allclose((joules - cost.wait_j).sum(), honest.energy_j, rtol=1e-9, atol=1e-12)
    assert honest.energy_j + 1e-9 >= selected.energy_j >= free.energy_j - 1e-9
    if engine.rules.deadline_s is not None:
        assert honest.time_s <= engine.rules.deadline_s + 1e-6
    assert not (cost.train_s[~chosen] > 0).any()
    assert set(fates[~chosen]) <= {Fate.REJECTED, Fate.LEFT, Fate.BATTERY, Fate.DEADLINE}
    assert set(fates[chosen]) <= {Fate.FINISHED, Fate.LEFT, Fate.BATTERY, Fate.DEADLINE, Fate.SURPLUS}
    assert ((cost.upload_s > 0) >= (fates == Fate.FINISHED)).all()
    if (fates == Fate.SURPLUS).any():
        assert (fates == Fate.FINISHED).sum() == engine.rules.k
    asked_ns = outcome.start_ns + outcome.duration_ns - round(honest.time_s * 1e9)
    leaves_ns = engine.world.conditions.leaves_at(asked_ns, outcome.clients)
    left = fates == Fate.LEFT
    np.testing.assert_allclose(seconds[left], (leaves_ns[left] - asked_ns) * 1e-9, atol=1e-6)
    assert (outcome.accuracy_gain != 0) <= (fates == Fate.FINISHED).any()
