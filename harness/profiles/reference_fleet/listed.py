"""Phones of AI-Benchmark's list: their own scores, and the power of their SoCs, interpolated if need be."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np

from harness.profiles.reference_fleet.phones import BATTERY_MAH, ScoreLine, phones, rounded
from joulefleet.files import write_atomic
from power.reference import ListedPhones

SOURCE = (
    "AI-Benchmark's ranking (Ignatov et al. 2019) as listed in FLASH "
    "(https://github.com/PKU-Chengxu/FLASH, BSD-2-Clause): model, SoC and CPU float score; power by SoC from "
    "freqbench (MIT). Phones below the lowest score of a SoC whose power was measured are left out: their "
    "power would be an extrapolation. 5G where a name says so; kinds of cores by the makers of the SoCs"
)
ONE_DESIGN = (
    *("Snapdragon 410", "Snapdragon 425", "Snapdragon 430", "Snapdragon 435", "Snapdragon 439"),
    *("Snapdragon 450", "Snapdragon 615", "Snapdragon 617", "Snapdragon 625", "Snapdragon 630"),
    *("Snapdragon 820", "Snapdragon 821", "Helio P22", "Helio P23", "Helio P35", "Kirin 659"),
    *("MT6735", "MT6739", "MT6750", "Exynos 7570", "Exynos 7580", "SC9863A", "Atom"),
)
"""SoCs whose cores are all of one design (Cortex-A53 or A55, Kryo, Silvermont), as their makers say."""
COLUMNS = ("device", "soc", "score", "core_w", "runs", "radio", "cores")


def listed(folder: Path) -> ListedPhones:
    """Every phone of the list whose score is among those of measured SoCs; one of several entries of one.

    A phone that was sold with several SoCs stands here once for each.
    """
    reference, _, _ = phones(folder)
    # Scores that were themselves predicted say nothing about power against score.
    known = {phone.soc: phone for phone in reference if phone.score_phones}
    line = ScoreLine.fit([p.score for p in known.values()], [p.core_w for p in known.values()])
    lowest = min(phone.score for phone in known.values())
    scores: dict[tuple[str, str], list[float]] = {}
    for row in json.loads((folder / "flash_raw_ai_benchmark_list.json").read_text(encoding="utf-8")):
        soc = " ".join(row["CPU"].removesuffix(" Octa").split())
        scores.setdefault((row["Model"].strip(), soc), []).append(float(row["CPU_F_AI_Score"]))
    times = Counter(model for model, _ in scores)
    rows = []
    for (model, soc), found in scores.items():
        score = rounded(float(np.median(found)))
        if score < lowest:
            continue
        measured = known.get(soc)
        rows.append(
            (
                model if times[model] == 1 else f"{model} ({soc})",
                soc,
                score,
                measured.core_w if measured else rounded(line.score(score)),
                measured.runs if measured else 0,
                "nr" if "5G" in f"{model} {soc}" else "lte",
                _cores(soc),
            )
        )
    return ListedPhones(
        source=SOURCE,
        power_exponent=rounded(line.exponent),
        power_log_sd=rounded(line.log_sd),
        battery_mah=float(np.median(list(BATTERY_MAH.values()))),
        columns=COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: (row[2], row[0]))),
    )


def _cores(soc: str) -> Literal["equal", "big_little"]:
    return "equal" if any(name in soc for name in ONE_DESIGN) else "big_little"


def write_listed(path: Path, folder: Path) -> None:
    """One line per phone."""
    found = listed(folder).model_dump(mode="json")
    rows = ",\n    ".join(json.dumps(row) for row in found.pop("rows"))
    head = json.dumps(found, indent=2).removesuffix("\n}")
    write_atomic(path, f'{head},\n  "rows": [\n    {rows}\n  ]\n}}\n'.encode(), replace=True)
