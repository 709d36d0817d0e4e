from emulator.selectors.afl import ActiveFederatedLearning
from emulator.selectors.fedavg import FedAvg
from emulator.selectors.fedrank.selector import FedRank, device_states
from emulator.selectors.neural.mlp import Mlp
from emulator.selectors.oort.selector import Oort
from emulator.selectors.parts.options import options_of
from emulator.selectors.random_by_size import RandomBySize
from emulator.selectors.registry import shown_name
from emulator.selectors.tifl import TiFL

__all__ = [
    "ActiveFederatedLearning", "FedAvg", "FedRank", "Mlp", "Oort", "RandomBySize", "TiFL",
    "device_states", "options_of", "shown_name",
]  # fmt: skip
