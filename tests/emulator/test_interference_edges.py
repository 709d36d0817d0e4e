"""Interference where the measured phones are unlike those that we have: none of them is forgotten."""

from types import SimpleNamespace

import numpy as np

from emulator.fleet.interference import BackgroundGroup, Published
from power.profile.model import PublishedSpread
from power.reference import reference_facts
from tests.emulator.worlds import fleet, profile

FACTS = reference_facts().interference
PHONES = {phone.device: phone for phone in FACTS.phones}


def test_every_phone_with_its_kind_of_cores_is_drawn() -> None:
    """One of big and little cores and two of equal ones, which is the other way round in the facts."""
    equal = [PHONES[name].model_copy(update={"cores": "equal"}) for name in ("Nexus 6", "Nexus 6P")]
    facts = FACTS.model_copy(update={"phones": (PHONES["Pixel 2"], *equal)})
    spreads = [
        PublishedSpread(cores=cores, time_log_sd=0, power_log_sd=0, class_log_sd=0, unit_log_sd=0)
        for cores in ("big_little", "equal")
    ]
    state = fleet([profile(published=spread) for spread in spreads], [100] * 200)
    apps = Published(state.costs, facts, ("video",), BackgroundGroup.NEVER, 7)
    devices = np.arange(200)
    # Each of 200 uses its own: every app of the class is drawn on every phone.
    beside = SimpleNamespace(cpu=np.ones(200), app=np.zeros(200, np.int64), use_ns=devices * 1_000)
    slowdown, factor = apps.factors(state.profile, devices, beside)  # type: ignore[arg-type]
    for number, phones in enumerate(([PHONES["Pixel 2"]], equal)):
        mine = state.profile == number
        found = set(zip(slowdown[mine].tolist(), factor[mine].tolist(), strict=True))
        assert found == {phone.factors(app) for phone in phones for app in FACTS.classes["video"]}
