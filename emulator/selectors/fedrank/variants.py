"""FedRank without one of its parts, as the paper's ablation and generalisation figures compare them."""

from __future__ import annotations

from typing import Any, ClassVar

from emulator.selectors.fedrank.selector import FedRank


class WithoutImitation(FedRank):
    """-I: random initial weights, no demonstrations."""

    name: ClassVar[str] = "fedrank_minus_i"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"policy": "", **options})


class WithoutRanking(FedRank):
    """-P: the rank loss is left out of the online loss."""

    name: ClassVar[str] = "fedrank_minus_p"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"rank_weight": 0.0, **options})


class WithoutBoth(FedRank):
    """-IP: reinforcement learning alone."""

    name: ClassVar[str] = "fedrank_minus_ip"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"policy": "", "rank_weight": 0.0, **options})


class Frozen(FedRank):
    """Imitation alone: no online updates, no exploration. It shows what online learning adds."""

    name: ClassVar[str] = "fedrank_frozen"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"online": False, **options})


class FromOort(FedRank):
    """Imitates Oort alone."""

    name: ClassVar[str] = "fedrank_from_oort"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"policy": "fedrank_from_oort", **options})


class FromFedMarl(FedRank):
    """Imitates FedMarl alone."""

    name: ClassVar[str] = "fedrank_from_fedmarl"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"policy": "fedrank_from_fedmarl", **options})


class FromHarmonyLike(FedRank):
    """Imitates the Harmony surrogate alone."""

    name: ClassVar[str] = "fedrank_from_harmony_like"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"policy": "fedrank_from_harmony_like", **options})


class Literal(FedRank):
    """The equations as printed: ranked by Q(s, 1), the rank loss's target is the target network alone."""

    name: ClassVar[str] = "fedrank_literal"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"rank_by": "q1", "rank_target": "literal", **options})
