"""Act 3: what early exit saves, by the paper's formula from profiles, and in the rounds of an emulation."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.experiments.results import FinishedRun
from emulator.experiments.vanilla import AgainstVanilla, against_vanilla
from harness.probing.predict import Prediction, Question, predict
from joulefleet.errors import DataQualityError
from power.profile.model import DeviceProfile


def predicted_savings(
    profiles: Sequence[DeviceProfile], candidates: int, chosen: int, seed: int
) -> Prediction:
    """By the formula; each profile stands for as many devices as are drawn from it."""
    question = Question(candidates=(candidates,), chosen=(chosen,), distinct=False, seed=seed)
    return predict(profiles, question)


def replayed_savings(runs: Sequence[FinishedRun]) -> AgainstVanilla:
    """From the logs of a probing method, one run per seed.

    Raises:
        DataQualityError: There is no round to count.
    """
    found = against_vanilla(runs)
    if found is None:
        raise DataQualityError(
            "no emulated round in which every device finished or was told to stop",
            hint="a scenario without leaving devices has such rounds",
        )
    return found
