"""Phones of the reference fleet: speed and power of their SoCs, batteries, radio, sleep, charging."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from power.reference import PhoneFacts, Radio, RadioLink

if TYPE_CHECKING:
    import pandas as pd


MACS = {"Alexnet": 0.71e9, "GoogLenet": 1.50e9, "Mobilenet": 0.30e9}
"""torchvision's documentation."""

PARAMETERS = {"Alexnet": 61_000_000, "GoogLenet": 6_800_000, "Mobilenet": 3_400_000}
"""BODT's README."""

BATTERY_V = 3.85
"""Nominal voltage of lithium-ion phone cells, as the makers state it (energy in Wh over charge in Ah)."""

CORES = {"msm8917": 4, "zuma": 9}
"""Where it is not eight."""

ALIKE = frozenset(("msm8917", "msm8940", "msm8953", "sdm439", "sdm630"))
"""SoCs whose cores are all of one design (Cortex-A53), as their makers say."""

WITH_5G = frozenset(
    ("gs101", "gs201", "mt6853t", "sm7225", "sm7250ab", "sm8250", "sm8250ac", "sm8350", "zuma", "zumapro")
)

BATTERY_MAH = {
    "Samsung Galaxy M20": 5000,
    "Samsung Galaxy M21": 6000,
    "Google Pixel 6": 4614,
    "Google Pixel 7 Pro": 5000,
    "Xiaomi Redmi 5A": 3000,
    "Xiaomi Redmi 4X": 4100,
    "Xiaomi Redmi Note 4X": 4100,
    "Google Pixel 2 XL": 3520,
    "Xiaomi Redmi Note 9T": 5000,
    "Xiaomi Redmi 8A": 5000,
    "Sony Xperia 8": 2760,
    "Motorola Moto E (2020)": 3550,
    "Xiaomi Redmi Note 5/Pro": 4000,
    "Xiaomi Redmi Note 7": 4000,
    "Google Pixel 3a": 3000,
    "Realme XT": 4000,
    "Xiaomi Mi Mix 2S": 3400,
    "Xiaomi Poco M3": 6000,
    "Xiaomi Mi A3": 4030,
    "Xiaomi Redmi Note 7 Pro": 4000,
    "Xiaomi Redmi Note 10": 5000,
    "Xiaomi Redmi Note 9S": 5020,
    "Xiaomi Mi 9T": 4000,
    "Google Pixel 4a": 3140,
    "Xiaomi Poco X3": 5160,
    "Xiaomi Mi 10i": 4820,
    "Google Pixel 5": 4080,
    "Asus ZenFone 6": 5000,
    "Asus ROG Phone II": 6000,
    "Xiaomi Mi 10T Pro": 5000,
    "Poco F3": 4520,
    "Xiaomi Mi 11": 4600,
    "Google Pixel 8 Pro": 5050,
    "Google Pixel 9 Pro": 4700,
}
"""mAh. A phone that is not here is not in the fleet."""


def rounded(value: float) -> float:
    """To four significant digits: more than any of the facts deserves, and stable across machines."""
    return float(f"{value:.4g}")


TRAINING_CORES = 4
"""Threads of BODT's measurements; mobile frameworks' default."""

LEAST_MW = 1.0
"""Rows below come from gauges that do not work: a core at its highest frequency draws tens of milliwatts."""


def read_scores(folder: Path) -> dict[str, list[float]]:
    """AI-Benchmark's CPU float scores by SoC."""
    rows = json.loads((folder / "flash_raw_ai_benchmark_list.json").read_text(encoding="utf-8"))
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(row["CPU"].strip().removesuffix(" Octa"), []).append(float(row["CPU_F_AI_Score"]))
    return scores


def read_clusters(folder: Path) -> pd.DataFrame:
    """One row per (SoC, run, cluster): speed and power of one core at the highest frequency measured."""
    import pandas as pd

    table = pd.read_csv(folder / "freqbench_soc_power.csv.gz")
    table["run"] = table["run"].fillna("main")
    table = table[(table["Power (mW)"] > LEAST_MW) & (table["accuracy"] != "Low")]
    table = table[table["device"].isin(list(BATTERY_MAH))]
    return table.loc[table.groupby(["soc", "run", "CPU"])["Frequency (kHz)"].idxmax()]


def cores_of(soc: str, first_cpus: list[int]) -> dict[int, int]:
    """Cores of each cluster. freqbench names a cluster by its first core, and the first one by core 1."""
    starts = [0 if cpu == 1 else cpu for cpu in first_cpus]
    ends = [*starts[1:], CORES.get(soc, 8)]
    return {cpu: end - start for cpu, start, end in zip(first_cpus, starts, ends, strict=True)}


def fastest_cores(soc: str, run: pd.DataFrame) -> tuple[float, float]:
    """CoreMark per second and watts of the four fastest cores together."""
    counts = cores_of(soc, sorted(run["CPU"]))
    cores = [
        (mark, milliwatt / 1000)
        for cpu, mark, milliwatt in zip(run["CPU"], run["CoreMarks (iter/s)"], run["Power (mW)"], strict=True)
        for _ in range(counts[cpu])
    ]
    fastest = sorted(cores, reverse=True)[:TRAINING_CORES]
    return sum(mark for mark, _ in fastest), sum(watt for _, watt in fastest)


@dataclass(frozen=True, slots=True)
class Soc:
    """A SoC as freqbench has it: CoreMark and watts of its four fastest cores, one pair per run."""

    device: str
    name: str
    runs: list[tuple[float, float]]

    @property
    def coremark(self) -> float:
        """Median over the runs."""
        return float(np.median([mark for mark, _ in self.runs]))

    @property
    def core_w(self) -> float:
        """Median over the runs."""
        return float(np.median([watt for _, watt in self.runs]))


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """Straight line of log score against log CoreMark, over the SoCs that have both."""

    exponent: float
    constant: float
    log_sd: float

    @classmethod
    def fit(cls, marks: list[float], scores: list[float]) -> ScoreLine:
        """Least squares."""
        exponent, constant = np.polyfit(np.log(marks), np.log(scores), 1)
        off = np.log(scores) - constant - exponent * np.log(marks)
        return cls(float(exponent), float(constant), float(np.sqrt(off @ off / (len(off) - 2))))

    def score(self, coremark: float) -> float:
        """Predicted."""
        return float(np.exp(self.constant + self.exponent * np.log(coremark)))


def read_socs(folder: Path) -> dict[str, Soc]:
    """By freqbench's code name."""
    socs: dict[str, Soc] = {}
    for key, run in read_clusters(folder).groupby(["soc", "run"]):
        code = str(key[0])
        name = run["soc_name"].iloc[0].replace("+", " Plus")  # as AI-Benchmark spells it
        soc = socs.setdefault(code, Soc(run["device"].iloc[0], name, []))
        soc.runs.append(fastest_cores(code, run))
    return socs


def phones(folder: Path) -> tuple[list[PhoneFacts], ScoreLine, float]:
    """All phone classes, the line that filled in missing scores, and how well freqbench's power repeats."""
    scores = read_scores(folder)
    socs = read_socs(folder)
    both = [soc for soc in socs.values() if soc.name in scores]
    line = ScoreLine.fit([s.coremark for s in both], [float(np.median(scores[s.name])) for s in both])
    found = [_phone(code, soc, scores.get(soc.name, []), line) for code, soc in socs.items()]
    repeat_log_sd = _pooled_log_sd([[watt for _, watt in soc.runs] for soc in socs.values()])
    return sorted(found, key=lambda phone: (phone.score, phone.device)), line, repeat_log_sd


def _phone(code: str, soc: Soc, scores: list[float], line: ScoreLine) -> PhoneFacts:
    return PhoneFacts(
        device=soc.device,
        soc=soc.name,
        score=rounded(float(np.median(scores)) if scores else line.score(soc.coremark)),
        score_phones=len(scores),
        score_log_sd=rounded(float(np.std(np.log(scores), ddof=1))) if len(scores) > 1 else None,
        coremark=rounded(soc.coremark),
        core_w=rounded(soc.core_w),
        runs=len(soc.runs),
        battery_mah=BATTERY_MAH[soc.device],
        radio="nr" if code in WITH_5G else "lte",
        cores="equal" if code in ALIKE else "big_little",
    )


def _pooled_log_sd(groups: list[list[float]]) -> float:
    deviations = [np.log(group) - np.mean(np.log(group)) for group in groups if len(group) > 1]
    dof = sum(len(group) - 1 for group in deviations)
    return float(np.sqrt(sum(float(group @ group) for group in deviations) / dof))


NETWORKS = {"lte": "LTE", "nr": "NSALow"}
CHARGING_BELOW = 0.8
"""Above, chargers slow down."""


def radios(folder: Path) -> dict[str, Radio]:
    """Power against rate by least squares, for each network and direction."""
    import pandas as pd

    table = pd.read_csv(folder / "sigcomm21_MN-Transfer_combined.csv.gz")
    found = {}
    for name, network in NETWORKS.items():
        rows = table[table["network type"] == network]
        links = {}
        for direction in ("downlink", "uplink"):
            part = rows[rows["direction"] == direction]
            slope, base = np.polyfit(part["throughput"], part["avg_power"], 1)  # mW against Mbit/s
            off = part["avg_power"] - base - slope * part["throughput"]
            links[direction] = RadioLink(
                base_w=rounded(base / 1000),
                slope_j_per_bit=rounded(slope * 1e-9),
                sd_w=rounded(float(off.std(ddof=2)) / 1000),
                rate_bit_s=rounded(float(part["throughput"].median()) * 1e6),
            )
        found[name] = Radio(download=links["downlink"], upload=links["uplink"])
    return found


def asleep_w(folder: Path) -> float:
    """Lower quartile of a phone's power on battery."""
    import pandas as pd

    table = pd.read_csv(folder / "iphone16promax_battery_20s.csv.gz")
    on_battery = table[(table["ExternalConnected"] == 0) & (table["InstantAmperage"] < 0)]
    watts = -on_battery["InstantAmperage"] * on_battery["Voltage"] * 1e-6  # mA x mV
    return rounded(float(watts.quantile(0.25)))


def charge_share_per_h(folder: Path) -> float:
    """Share of the battery charged per hour: median over users of their mean."""
    import pandas as pd

    table = pd.read_csv(folder / "extrasensory_phone_state.csv.gz").sort_values(["user", "timestamp"])
    following = table.groupby("user")[["timestamp", "battery_level", "battery_state"]].shift(-1)
    hours = (following["timestamp"] - table["timestamp"]) / 3600
    steady = (table["battery_state"] == "charging") & (following["battery_state"] == "charging")
    usable = steady & (hours < 5 / 60) & (table["battery_level"] < CHARGING_BELOW)
    gained = (following["battery_level"] - table["battery_level"])[usable].groupby(table["user"]).sum()
    spent = hours[usable].groupby(table["user"]).sum()
    return rounded(float((gained / spent)[spent > 1].median()))
