"""Where does probing begin to pay? Volatility of costs x share of the probe x number of candidates.

The best K of M candidates by a probe (``frugal_probe_all``) against the best K of M by forecast
(``frugal_forecast_all``): the twins differ in nothing but the probe. Beside them ``frugal``, which probes by
value, and its twin ``frugal_no_probe``. Nothing is learned (the surrogate trainer): the map is of time and
energy per round. The probe's share is one epoch of l.
"""

from __future__ import annotations

from emulator.experiments.designs.sizes import FEW, FIVE, TEN, derived, digits
from emulator.experiments.plan import Preset, Variant, VariantPlan

VOLATILITIES = (0.0, 0.1, 0.3, 0.6, 1.0)
"""Standard deviation of the logarithm of a device's time from round to round."""
EPOCHS = (2, 5, 10)
CANDIDATES = (15, 30, 100)
METHODS = ("fedavg", "frugal_no_probe", "frugal")
TWINS = ("frugal_forecast_all", "frugal_probe_all")


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """For every volatility and number of epochs: the twin without probes once, then each M."""
    smoke = preset is Preset.SMOKE
    seeds = {Preset.SMOKE: FEW, Preset.LAPTOP: FIVE, Preset.PAPER: TEN}[preset]
    sizes: dict[str, object] = {"protocol.rounds": 20 if preset is Preset.LAPTOP else 50}
    if smoke:
        sizes = {"fleet.devices": 30, "protocol.rounds": 4, "protocol.k": 5, "protocol.candidates": 10}
    plans = []
    for volatility in (VOLATILITIES[0], VOLATILITIES[-1]) if smoke else VOLATILITIES:
        for epochs in EPOCHS[:1] if smoke else EPOCHS:
            base = _world(volatility, epochs, sizes)
            plans.append(VariantPlan(base, METHODS, seeds))
            among = (10,) if smoke else CANDIDATES
            plans += [VariantPlan(_among(base, m), TWINS, seeds) for m in among]
    return plans


def _world(volatility: float, epochs: int, sizes: dict[str, object]) -> Variant:
    usual = digits("iid")
    name = f"sd-{volatility:g}-epochs-{epochs}".replace(".", "p")
    changes = {
        "trainer.kind": "surrogate",
        "fleet.traces": None,  # apps would be a volatility of their own
        "fleet.variation.time": volatility,
        "fleet.variation.power": 0.0,
        "protocol.local_epochs": epochs,
        **sizes,
    }
    title = f"log-sd {volatility:g} of a device's time; probe 1 of {epochs} epochs"
    notes = ("nothing is learned: time and energy only", "no apps", f"{epochs} local epochs")
    return derived(usual, name, title, changes, reductions=notes)


def _among(base: Variant, m: int) -> Variant:
    return derived(
        base,
        f"{base.name}-m-{m}",
        f"{base.title}; M = {m}",
        {"protocol.candidates": m},
        baseline=base.name,
    )
