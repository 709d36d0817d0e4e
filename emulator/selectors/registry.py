"""All selectors by name, those of other packages (entry points ``joulefleet.selectors``) included."""

from __future__ import annotations

from emulator.round.selector import Selector
from joulefleet.registry import Registry

SELECTORS: Registry[type[Selector]] = Registry(
    what="selector",
    group="joulefleet.selectors",
    builtin={
        "afl": (
            "emulator.selectors.afl:ActiveFederatedLearning",
            "Devices that the global model fits worst are likelier (Goetz et al. 2019)",
        ),
        "autofl": (
            "emulator.selectors.autofl:AutoFl",
            "Tabular Q-learning over device states (Kim and Wu 2021)",
        ),
        "class_coverage_oracle": (
            "emulator.selectors.oracles:ClassCoverageOracle",
            "Oracle: cohorts that cover all classes",
        ),
        "cpow_d": (
            "emulator.selectors.power_of_choice:CheapPowerOfChoice",
            "Power-of-Choice on the loss of one mini-batch (Cho et al. 2020)",
        ),
        "eafl": ("emulator.selectors.eafl:Eafl", "Oort times the charge left (Arouj and Abdelmoniem 2022)"),
        "energy_budget": (
            "emulator.selectors.energy_budget.selector:EnergyBudgetSelector",
            "Most valuable cohort within one energy budget for the whole training (own)",
        ),
        "energy_oracle": ("emulator.selectors.oracles:EnergyOracle", "Oracle: the cheapest devices"),
        "fed_cbs": (
            "emulator.selectors.fed_cbs:FedCbs",
            "Class-balanced cohorts from estimated labels (Zhang et al. 2023)",
        ),
        "fed_cbs_exact": (
            "emulator.selectors.fed_cbs:FedCbsExact",
            "Oracle: Fed-CBS on true label histograms",
        ),
        "fedavg": ("emulator.selectors.fedavg:FedAvg", "Uniformly random clients (McMahan et al. 2017)"),
        "favor": (
            "emulator.selectors.favor:Favor",
            "Double DQN on principal components of weights (Wang et al. 2020)",
        ),
        "fedmarl": (
            "emulator.selectors.fedmarl:FedMarl",
            "Agents reject candidates after their probe (Zhang et al. 2022)",
        ),
        "fedrank": (
            "emulator.selectors.fedrank.selector:FedRank",
            "Learning to rank probed devices (ICML 2024)",
        ),
        "fedrank_from_fedmarl": (
            "emulator.selectors.fedrank.variants:FromFedMarl",
            "FedRank that imitates FedMarl alone",
        ),
        "fedrank_from_harmony_like": (
            "emulator.selectors.fedrank.variants:FromHarmonyLike",
            "FedRank that imitates the Harmony surrogate alone",
        ),
        "fedrank_from_oort": (
            "emulator.selectors.fedrank.variants:FromOort",
            "FedRank that imitates Oort alone",
        ),
        "fedrank_frozen": (
            "emulator.selectors.fedrank.variants:Frozen",
            "FedRank's imitation alone, without online learning",
        ),
        "fedrank_literal": (
            "emulator.selectors.fedrank.variants:AsPrinted",
            "FedRank's equations as printed",
        ),
        "fedrank_minus_i": (
            "emulator.selectors.fedrank.variants:WithoutImitation",
            "FedRank without imitation (-I)",
        ),
        "fedrank_minus_ip": (
            "emulator.selectors.fedrank.variants:WithoutBoth",
            "FedRank without imitation and rank loss (-IP)",
        ),
        "fedrank_minus_p": (
            "emulator.selectors.fedrank.variants:WithoutRanking",
            "FedRank without the rank loss (-P)",
        ),
        "fedrank_plus": (
            "emulator.selectors.fedrank.plus:FedRankPlus",
            "FedRank with a set-aware choice and fewer probes; not in the paper",
        ),
        "fedprox": (
            "emulator.selectors.fedprox:FedProx",
            "Uniformly random clients with a proximal term (Li et al. 2020)",
        ),
        "fedzero": (
            "emulator.selectors.fedzero.selector:FedZero",
            "Shortest round that excess energy allows, most useful clients (Wiesner et al. 2024)",
        ),
        "frugal": (
            "emulator.selectors.frugal.selector:Frugal",
            "Forecast costs and label coverage; probes only where they are worth their price (own)",
        ),
        "frugal_forecast_all": (
            "emulator.selectors.frugal.selector:FrugalForecastAll",
            "Frugal that considers M candidates by forecast, without probes (own)",
        ),
        "frugal_no_probe": (
            "emulator.selectors.frugal.selector:FrugalNoProbe",
            "Frugal that never probes (own)",
        ),
        "frugal_probe_all": (
            "emulator.selectors.frugal.selector:FrugalProbeAll",
            "Frugal that always probes M candidates (own)",
        ),
        "harmony_like": (
            "emulator.selectors.harmony_like:HarmonyLike",
            "Surrogate for Harmony: label balance under budgets",
        ),
        "no_probe": (
            "emulator.selectors.fedrank.plus:NoProbe",
            "Control: FedRank+'s candidates by label balance alone, without probes and network",
        ),
        "oort": (
            "emulator.selectors.oort.selector:Oort",
            "High losses, fast enough, some unexplored (Lai et al. 2021)",
        ),
        "power_of_choice": (
            "emulator.selectors.power_of_choice:PowerOfChoice",
            "Highest losses of a few random candidates (Cho et al. 2020)",
        ),
        "random_by_size": (
            "emulator.selectors.random_by_size:RandomBySize",
            "Control: at random in proportion to data size",
        ),
        "refl": ("emulator.selectors.refl:Refl", "Least available first (Abdelmoniem et al. 2023)"),
        "refl_oracle": (
            "emulator.selectors.refl:ReflOracle",
            "Oracle: who is about to leave first (Abdelmoniem et al. 2023, as its code)",
        ),
        "rpow_d": (
            "emulator.selectors.power_of_choice:RememberedPowerOfChoice",
            "Power-of-Choice on the last known loss (Cho et al. 2020)",
        ),
        "speed_oracle": ("emulator.selectors.oracles:SpeedOracle", "Oracle: the fastest devices"),
        "tifl": ("emulator.selectors.tifl:TiFL", "Tiers of similar speed take turns (Chai et al. 2020)"),
    },
)


def shown_name(method: str) -> str:
    """A method as people should read it: oracles and surrogates are marked. Options may follow the name."""
    name = method.partition(" ")[0]
    kind = SELECTORS.load(name) if name in SELECTORS.entries() else Selector
    return method + " (oracle)" * kind.privileged + " (surrogate)" * kind.surrogate
