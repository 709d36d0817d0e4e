"""FedRank with one thing changed, as the paper's ablation and generalisation figures compare it.

Without one of its parts, from one expert alone, or with the equations as printed. Each takes all options of
FedRank; only what they are by default differs. For equations and switches see ``fedrank``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from emulator.selectors.fedrank.selector import FedRank


class FedRankVariant(FedRank):
    """FedRank with the defaults in ``option_defaults``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**self.option_defaults, **options})


class WithoutImitation(FedRankVariant):
    """-I: random initial weights, no demonstrations."""

    name: ClassVar[str] = "fedrank_minus_i"
    deviations: ClassVar[str] = FedRank.deviations
    option_defaults: ClassVar[Mapping[str, Any]] = {"policy": ""}


class WithoutRanking(FedRankVariant):
    """-P: the rank loss is left out of the online loss."""

    name: ClassVar[str] = "fedrank_minus_p"
    deviations: ClassVar[str] = "ranks by advantage, normalised state, exploration"
    option_defaults: ClassVar[Mapping[str, Any]] = {"rank_weight": 0.0}


class WithoutBoth(FedRankVariant):
    """-IP: reinforcement learning alone."""

    name: ClassVar[str] = "fedrank_minus_ip"
    deviations: ClassVar[str] = WithoutRanking.deviations
    option_defaults: ClassVar[Mapping[str, Any]] = {"policy": "", "rank_weight": 0.0}


class Frozen(FedRankVariant):
    """Imitation alone: no online updates, no exploration. It shows what online learning adds."""

    name: ClassVar[str] = "fedrank_frozen"
    deviations: ClassVar[str] = "no online learning; ranks by advantage, normalised state"
    option_defaults: ClassVar[Mapping[str, Any]] = {"online": False}


class FromOort(FedRankVariant):
    """Imitates Oort alone."""

    name: ClassVar[str] = "fedrank_from_oort"
    deviations: ClassVar[str] = FedRank.deviations
    option_defaults: ClassVar[Mapping[str, Any]] = {"policy": "fedrank_from_oort"}


class FromFedMarl(FedRankVariant):
    """Imitates FedMarl alone."""

    name: ClassVar[str] = "fedrank_from_fedmarl"
    deviations: ClassVar[str] = FedRank.deviations
    option_defaults: ClassVar[Mapping[str, Any]] = {"policy": "fedrank_from_fedmarl"}


class FromHarmonyLike(FedRankVariant):
    """Imitates the Harmony surrogate alone."""

    name: ClassVar[str] = "fedrank_from_harmony_like"
    deviations: ClassVar[str] = f"the expert is a surrogate for Harmony; {FedRank.deviations}"
    option_defaults: ClassVar[Mapping[str, Any]] = {"policy": "fedrank_from_harmony_like"}


class AsPrinted(FedRankVariant):
    """The equations as printed: ranked by Q(s, 1), the rank loss's target is the target network alone."""

    name: ClassVar[str] = "fedrank_literal"
    deviations: ClassVar[str] = "squared TD loss (as printed it has no square), normalised state, exploration"
    option_defaults: ClassVar[Mapping[str, Any]] = {"rank_by": "q1", "rank_target": "literal"}
