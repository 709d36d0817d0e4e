"""Training time and power on the anchor SoC, from BODT's logs and FLASH's table."""

from __future__ import annotations

import io
import json
import math
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.profiles.reference_fleet.phones import MACS, PARAMETERS, ScoreLine, rounded
from power.reference import Anchor, Family, PhoneFacts, Speed, TaskFacts

if TYPE_CHECKING:
    import pandas as pd

ANCHOR_SOC = "Snapdragon 855"
FULL_SPEED = {"XIAOMI": "Xiaomi Mi 9", "MEIZU_Core_f0": "Meizu 16T"}
FAMILIES: dict[str, Family] = {
    "Alexnet": "convolution",
    "GoogLenet": "convolution",
    "Mobilenet": "depthwise",
}
FLASH_MIDDLE = "Snapdragon 675"
FLASH_SHAKESPEARE = "shakespeare stacked_lstm (batch 100)"
SETTLED_S = 0.5
LEAST_BATCH = 8
"""From this batch size on the four cores are busy (CPU use above 300 %)."""

STAMP = re.compile(r"^(.*?) ?: ?(\d{13})", re.MULTILINE)


class Bodt:
    """BODT's archive, read without unpacking it."""

    def __init__(self, folder: Path) -> None:
        with tarfile.open(folder / "bodt_on_device_training.tar.gz") as archive:
            self.files = {
                member.name.removeprefix("./"): file.read()
                for member in archive
                if (file := archive.extractfile(member)) is not None
            }

    def table(self, path: str) -> pd.DataFrame | None:
        """A CSV of the archive, if it is there."""
        import pandas as pd

        return pd.read_csv(io.BytesIO(self.files[path])) if path in self.files else None

    def batch_line(self, device: str, model: str) -> tuple[float, float] | None:
        """Seconds per batch and seconds per sample."""
        table = self.table(f"{device}/processed_data/{model}/time_table_{model}.csv")
        if table is None:
            return None
        sample_ms, batch_ms = np.polyfit(table["batchsize"], table["expr_train"], 1)
        return batch_ms / 1000, sample_ms / 1000

    def power(self, device: str, model: str) -> tuple[float, dict[int, float]]:
        """Watts of the idle phone, and while training by batch size: from USB minus into the battery."""
        table = self.table(f"{device}/processed_data/{model}/processed_data_{model}.csv")
        if table is None or "usb_current" not in table:
            return math.nan, {}
        # uA x uV. The battery's current is positive while it charges: that part is not used by the phone.
        usb_w = table["usb_current"] * table["usb_voltage"] * 1e-12
        watts = usb_w - table["battery_current"] * table["battery_voltage"] * 1e-12
        stamps = self._stamps(device, model)
        first_ms = min(min(times.values()) for times in stamps.values())
        training = {}
        for batch, times in stamps.items():
            inside = table["stamp"].between(
                times["Begin training"] + SETTLED_S * 1000, times["End trainning"]
            )
            if inside.any():
                training[batch] = float(watts[inside].mean())
        return float(watts[table["stamp"] < first_ms - 2000].median()), training

    def _stamps(self, device: str, model: str) -> dict[int, dict[str, int]]:
        found = {}
        for path, content in self.files.items():
            match = re.fullmatch(rf"{device}/train_stamp/{model}/train_stamp_(\d+)\.result", path)
            if match:
                pairs = STAMP.findall(content.decode())
                found[int(match[1])] = {name: int(stamp_ms) for name, stamp_ms in pairs}
        return found


def training_power(bodt: Bodt, anchor: PhoneFacts) -> dict[str, float]:
    """How training power compares with the cores' CoreMark power, and the awake idle power beside it."""
    idle: list[float] = []
    training: list[float] = []
    for model in ("Lenet", *FAMILIES):
        idle_w, by_batch = bodt.power("MEIZU_Core_f0", model)
        if by_batch:
            idle.append(idle_w)
            training += [watts for batch, watts in by_batch.items() if batch >= LEAST_BATCH]
    awake_w = float(np.median(idle))
    factors = (np.array(training) - awake_w) / anchor.core_w
    return {
        "training_factor": rounded(float(np.exp(np.log(factors).mean()))),
        "training_log_sd": rounded(float(np.log(factors).std(ddof=1))),
        "awake_w": rounded(awake_w),
        "awake_log_sd": rounded(float(np.log(idle).std(ddof=1))),
    }


def speed(folder: Path, bodt: Bodt, lstm: TaskFacts, scores: dict[str, float], line: ScoreLine) -> Speed:
    """The parts of a batch's time; see `power.reference.facts.Speed`.

    Args:
        folder: Of the device data sets.
        bodt: BODT's archive.
        lstm: The task that FLASH's time is about.
        scores: Score by SoC.
        line: Score against CoreMark.
    """
    of_bodt = _bodt_anchors(bodt)
    anchors = [*of_bodt, _flash_anchor(folder, lstm)]
    lenet = [found[0] for device in FULL_SPEED if (found := bodt.batch_line(device, "Lenet"))]
    batch_s = float(np.mean(lenet))
    per_parameter = [(anchor.batch_s - batch_s) / anchor.parameters for anchor in of_bodt]
    logs: dict[Family, list[float]] = {}
    for anchor in anchors:
        # Forward, and twice as much backward; each multiply-add is two operations.
        logs.setdefault(anchor.family, []).append(math.log(6 * anchor.macs_per_sample / anchor.sample_s))
    check, device_log_sd = _flash_check(folder, scores[ANCHOR_SOC], scores[FLASH_MIDDLE])
    return Speed(
        soc=ANCHOR_SOC,
        batch_s=rounded(batch_s),
        parameter_s=rounded(float(np.exp(np.mean(np.log(per_parameter))))),
        flop_s={family: rounded(math.exp(float(np.mean(values)))) for family, values in logs.items()},
        # One model each for the other families: how far models differ is known from the convolutional ones.
        log_sd=dict.fromkeys(logs, rounded(_between_models(of_bodt))),
        device_log_sd=rounded(device_log_sd),
        coremark_exponent=rounded(line.exponent),
        coremark_log_sd=rounded(line.log_sd),
        check=check,
        anchors=tuple(anchors),
    )


def _bodt_anchors(bodt: Bodt) -> list[Anchor]:
    found = []
    for folder, device in FULL_SPEED.items():
        for model, family in FAMILIES.items():
            line = bodt.batch_line(folder, model)
            if line is not None:
                found.append(
                    Anchor(
                        model=model,
                        family=family,
                        device=device,
                        macs_per_sample=MACS[model],
                        parameters=PARAMETERS[model],
                        batch_s=rounded(line[0]),
                        sample_s=rounded(line[1]),
                        source="bodt",
                    )
                )
    return found


def _flash_anchor(folder: Path, lstm: TaskFacts) -> Anchor:
    batch_ms = _flash_table(folder)[FLASH_SHAKESPEARE][2][0]
    return Anchor(
        model="stacked LSTM",
        family="recurrent",
        device="Google Pixel 4",
        macs_per_sample=rounded(lstm.flop_per_sample / 6),
        parameters=lstm.parameters,
        batch_s=0.0,
        sample_s=rounded(batch_ms / 1000 / 100),
        source="flash",
    )


def _between_models(anchors: list[Anchor]) -> float:
    """Leave-one-out: how far the time per operation of one convolutional model is from that of the others."""
    by_model: dict[str, list[float]] = {}
    for anchor in anchors:
        if anchor.family == "convolution":
            by_model.setdefault(anchor.model, []).append(math.log(anchor.sample_s / anchor.macs_per_sample))
    means = {model: float(np.mean(values)) for model, values in by_model.items()}
    errors = [m - np.mean([o for name, o in means.items() if name != model]) for model, m in means.items()]
    # The error of a prediction from k models is sqrt(1 + 1/k) times the spread; the fleet uses all of them.
    k = len(means)
    return float(np.sqrt(np.mean(np.square(errors)) * (1 + 1 / k) / (1 + 1 / (k - 1))))


def _flash_check(folder: Path, fast: float, middle: float) -> tuple[str, float]:
    table = _flash_table(folder)
    ratios = [rows[1][0] / rows[2][0] for rows in table.values()]
    errors = np.log(ratios) - math.log(fast / middle)
    rms = float(np.sqrt(np.mean(errors**2)))
    listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    text = (
        f"FLASH's middle phone ({FLASH_MIDDLE}) is slower than its fast one ({ANCHOR_SOC}) "
        f"by {listed} for four models; the scores say {fast / middle:.2f}"
    )
    return text, rms


def _flash_table(folder: Path) -> dict[str, list[list[float]]]:
    data = json.loads((folder / "flash_training_time.json").read_text(encoding="utf-8"))
    return {
        name: rows
        for name, rows in data.items()
        if isinstance(rows, list) and rows and isinstance(rows[0], list)
    }
