"""R_T and R_E of a round under every probe accounting (`docs/selectors-notes.md`, items A3 to A5).

============== ========================================== ===============================================
accounting     R_T                                        R_E
============== ========================================== ===============================================
honest         max over candidates (T_down + T_probe), +  sum over candidates (E_down + E_probe), +
               max over chosen (T_train + T_up)           sum over chosen (E_train + E_up)
selected_only  max over candidates T_probe, +             sum over chosen (E_down + E_probe + E_train
               max over chosen (T_down + T_train + T_up)  + E_up)
free           max over chosen (T_down + T_train + T_up)  sum over chosen (E_down + E_train + E_up)
============== ========================================== ===============================================

Without probing the three are the same; so they are for profiling (round 0), which is no probe for a choice.
Waiting for the decision is in none of them: `ClientCost.wait_j`. A probing round may be held against the same
round without early exit: `vanilla_cost`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import Accounting, ClientCost, RoundCost

PHASES = ("download", "probe", "train", "upload")
"""Of a participant's work; waiting for the decision is in no accounting."""


def round_costs(
    cost: ClientCost, chosen: NDArray[np.bool_], duration_s: float, *, probed: bool
) -> dict[Accounting, RoundCost]:
    """The three accountings of one round.

    Args:
        cost: Of each participant.
        chosen: Who was told to train.
        duration_s: From the first download to the last update; what ``honest`` calls R_T. Where only the
            phases are known, `honest_time_s` gives it.
        probed: Whether there were candidates beside the chosen.
    """
    # Whatever was spent counts, also by a device that trained on because nobody could tell it to stop.
    honest = RoundCost(duration_s, _energy_j(cost, counted(Accounting.HONEST, np.ones_like(chosen))))
    if not probed:
        return dict.fromkeys(Accounting, honest)
    after_s = float((cost.download_s + cost.train_s + cost.upload_s)[chosen].max(initial=0.0))
    time_s = {
        Accounting.SELECTED_ONLY: float(cost.probe_s.max(initial=0.0)) + after_s,
        Accounting.FREE: after_s,
    }
    others = {a: RoundCost(time_s[a], _energy_j(cost, counted(a, chosen))) for a in time_s}
    return {Accounting.HONEST: honest, **others}


def shares_of_round(
    cost: ClientCost, chosen: NDArray[np.bool_], round_cost: RoundCost, accounting: Accounting
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """R_T and R_E of a round if every chosen device were like each of them; for credit per device.

    R_T without what it finished before the last one; R_E with its own energy in the place of the chosen
    devices' mean. So the largest of the times is R_T, and the mean of the energies R_E.
    """
    after_s = (cost.train_s + cost.upload_s)[chosen]
    who = counted(accounting, chosen)
    own_j = np.sum([np.where(who[phase], getattr(cost, f"{phase}_j"), 0.0) for phase in PHASES], axis=0)[
        chosen
    ]
    time_s = round_cost.time_s - (after_s.max(initial=0.0) - after_s)
    return time_s, round_cost.energy_j + len(own_j) * (own_j - own_j.mean() if len(own_j) else own_j)


def honest_time_s(cost: ClientCost, chosen: NDArray[np.bool_], *, probed: bool = True) -> float:
    """R_T under ``honest`` of a round in which nobody was late or went away."""
    if not probed:  # nobody waits for a choice
        return float((cost.download_s + cost.train_s + cost.upload_s).max(initial=0.0))
    probed_s, after_s = cost.download_s + cost.probe_s, (cost.train_s + cost.upload_s)[chosen]
    return float(probed_s.max(initial=0.0)) + float(after_s.max(initial=0.0))


def counted(accounting: Accounting, chosen: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """Whose energy counts in R_E of a probing round, phase by phase (`PHASES`).

    By phase, for those who have more than a probing round's costs: every candidate's epochs, say.
    """
    everybody = np.ones_like(chosen)
    before = everybody if accounting is Accounting.HONEST else chosen
    probe = np.zeros_like(chosen) if accounting is Accounting.FREE else before
    return {"download": before, "probe": probe, "train": chosen, "upload": chosen}


def _energy_j(cost: ClientCost, who: dict[str, NDArray[np.bool_]]) -> float:
    part = {phase: np.where(who[phase], getattr(cost, f"{phase}_j"), 0.0) for phase in PHASES}
    each_j = (part["download"] + part["probe"]) + (part["train"] + part["upload"])
    return float(each_j[who["download"]].sum())  # whoever counts at all has received the model


def vanilla_cost(cost: ClientCost, chosen: NDArray[np.bool_]) -> RoundCost:
    """The round without early exit: every candidate trains all epochs, then the chosen upload.

    Always counted in full, because all of it happens.

    Args:
        cost: Of each candidate; ``train`` is what the epochs after the first take, chosen or not.
        chosen: Who uploads.
    """
    trained_s = cost.download_s + cost.probe_s + cost.train_s
    trained_j = cost.download_j + cost.probe_j + cost.train_j
    return RoundCost(
        float(trained_s.max(initial=0.0)) + float(cost.upload_s[chosen].max(initial=0.0)),
        float(trained_j.sum() + cost.upload_j[chosen].sum()),
    )
