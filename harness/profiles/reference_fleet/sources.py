"""Where the facts of the reference fleet come from, and the few that were copied from a page by hand."""

from __future__ import annotations

from power.reference import FactSource

SOURCES = {
    "freqbench": FactSource(
        title="freqbench: CoreMark and power of each CPU cluster at each frequency, by fuel gauge",
        place="https://github.com/kdrag0n/freqbench",
        licence="MIT",
        used_for="power of a core at its highest frequency, above a phone with one idle core at its lowest; "
        "speed of SoCs that AI-Benchmark lacks. Rows that the project calls of low accuracy are left out",
    ),
    "ai_benchmark": FactSource(
        title="AI-Benchmark ranking (Ignatov et al. 2019) as listed in FLASH",
        place="https://github.com/PKU-Chengxu/FLASH (benchmark list), https://ai-benchmark.com",
        licence="BSD-2-Clause (FLASH)",
        used_for="CPU float score by SoC: relative speed, and its spread between phones with one SoC",
    ),
    "bodt": FactSource(
        title="Cai et al., Towards Ubiquitous Learning: A First Measurement of On-Device Training "
        "Performance (EMDL 2021), data of a Meizu 16T and a Xiaomi Mi 9, both Snapdragon 855, MNN with four "
        "threads",
        place="https://github.com/UbiquitousLearning/Benchmark-On-Device-Training",
        licence="none stated; numbers only",
        used_for="time per batch against batch size; power of the phone while training: USB power minus "
        "power into the battery, because the USB current alone is clamped near 485 mA while the battery "
        "supplies the rest. The runs at a fixed 1.7 GHz are left out: hardly slower, and they draw as much, "
        "so the frequency was not what was asked for. Image size taken as 224 x 224",
    ),
    "flash": FactSource(
        title="Yang et al., Characterizing Impacts of Heterogeneity in Federated Learning (WWW 2021), FLASH",
        place="https://github.com/PKU-Chengxu/FLASH, models/utils/device_util/device_util.py",
        licence="BSD-2-Clause",
        used_for="time per batch of 100 of the Shakespeare LSTM; slowness of its middle phone against its "
        "fast one, four models, as a check of the scores (two of its files name the phones differently)",
    ),
    "torchvision": FactSource(
        title="torchvision model documentation, multiply-adds of a forward pass ('GFLOPS')",
        place="https://pytorch.org/vision/stable/models.html",
        licence="BSD-3-Clause",
        used_for="arithmetic of AlexNet (0.71e9), GoogLeNet (1.50e9), MobileNetV2 (0.30e9)",
    ),
    "sigcomm21": FactSource(
        title="Narayanan et al., A Variegated Look at 5G in the Wild (SIGCOMM 2021), transfers of one phone "
        "on a Monsoon",
        place="https://github.com/SIGCOMM21-5G/artifact",
        licence="none stated; fitted numbers only",
        used_for="radio power against rate, LTE and low-band 5G, both ways, by least squares; the rate is "
        "the median of those measured. Taken as power above an idle phone",
    ),
    "iphone": FactSource(
        title="Fuel-gauge log of an iPhone 16 Pro Max, two days, one reading in 20 s",
        place="published data set; its address was not recorded",
        licence="CC BY 4.0",
        used_for="power asleep: lower quartile of the readings on battery (screen off or nearly)",
    ),
    "extrasensory": FactSource(
        title="ExtraSensory: Vaizman et al., Recognizing Detailed Human Context in the Wild (IEEE Pervasive "
        "Computing 2017)",
        place="http://extrasensory.ucsd.edu",
        licence="research use; one fitted number",
        used_for="share of the battery charged per hour below 80 %, median over users",
    ),
    "makers": FactSource(
        title="Specifications by the phones' makers",
        place="each maker's page of the phone",
        licence="facts",
        used_for="battery capacity, number of cores, and whether the phone has 5G; entered by hand and not "
        "checked again",
    ),
}

MACS = {"Alexnet": 0.71e9, "GoogLenet": 1.50e9, "Mobilenet": 0.30e9}
"""torchvision's documentation."""

PARAMETERS = {"Alexnet": 61_000_000, "GoogLenet": 6_800_000, "Mobilenet": 3_400_000}
"""BODT's README."""

BATTERY_V = 3.85
"""Nominal voltage of lithium-ion phone cells, as the makers state it (energy in Wh over charge in Ah)."""

CORES = {"msm8917": 4, "zuma": 9}
"""Where it is not eight."""

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
