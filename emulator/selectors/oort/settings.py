"""Parameters of Oort, and the values each mode starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Oort's parameters; the defaults are those of the paper (Lai et al., OSDI 2021).

    Attributes:
        exploration: Share of a cohort that goes to devices never tried; decays every round.
        exploration_decay: Factor per round.
        exploration_min: Where the decay ends.
        cut_off: c: devices that reach this share of the border score may be drawn.
        clip_bound: Quantile of the utilities to which larger ones are clipped.
        blacklist_after: A device that took part more often than this is left alone; -1 for never.
        blacklist_share: Most of the fleet that may be left alone.
        penalty: alpha: exponent of (T / duration) for devices slower than T.
        pacer_step: W: rounds that the pacer compares; 0 for a tenth of the planned rounds, 2 to 20.
        threshold_percent: T as a percentile of the fleet's durations, to begin with.
        threshold_step_percent: Delta: by how much the pacer moves it.
        sample_window: New devices are drawn among this many times as many as are wanted.
    """

    exploration: float = 0.9
    exploration_decay: float = 0.98
    exploration_min: float = 0.2
    cut_off: float = 0.95
    clip_bound: float = 0.95
    blacklist_after: int = 10
    blacklist_share: float = 0.3
    penalty: float = 2.0
    pacer_step: int = 0
    threshold_percent: float = 30.0
    threshold_step_percent: float = 5.0
    sample_window: float = 5.0


DEFAULTS: Mapping[str, Settings] = {
    "paper": Settings(),
    # The authors' training/argParser.py.
    "official": Settings(
        exploration_decay=0.95,
        cut_off=0.7,
        clip_bound=0.98,
        blacklist_after=-1,
        pacer_step=20,
        threshold_percent=10.0,
    ),
    # FedScale's config_parser.py.
    "fedscale": Settings(
        exploration_min=0.3, cut_off=0.05, clip_bound=0.9, blacklist_after=-1, pacer_step=20
    ),
}
