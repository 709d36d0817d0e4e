"""R_T and R_E of a round under every probe accounting (`docs/selectors.md`, items A3 to A5).

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


def round_costs(
    cost: ClientCost, chosen: NDArray[np.bool_], duration_s: float, *, probed: bool
) -> dict[Accounting, RoundCost]:
    """The three accountings of one round.

    Args:
        cost: Of each participant.
        chosen: Who was told to train.
        duration_s: From the first download to the last update; what ``honest`` calls R_T.
        probed: Whether there were candidates beside the chosen.
    """
    before_j = cost.download_j + cost.probe_j
    after_j = cost.train_j + cost.upload_j
    honest = RoundCost(duration_s, float((before_j + after_j).sum()))
    if not probed:
        return dict.fromkeys(Accounting, honest)
    after_s = float((cost.download_s + cost.train_s + cost.upload_s)[chosen].max(initial=0.0))
    return {
        Accounting.HONEST: honest,
        Accounting.SELECTED_ONLY: RoundCost(
            float(cost.probe_s.max(initial=0.0)) + after_s, float((before_j + after_j)[chosen].sum())
        ),
        Accounting.FREE: RoundCost(after_s, float((cost.download_j + after_j)[chosen].sum())),
    }


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
