"""What `docs/power.md`, `emulated-meters.md` and `recordings.md` say of options, signals and Python is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from harness.cli.meter.commands import meter
from power.emulated.faults import FaultKind
from power.emulated.hvpm import variant as hvpm
from power.emulated.lvpm import variant as lvpm
from power.emulated.options import _SIGNALS, parse_signal
from power.meters.ina219 import Ina219Options
from power.meters.ina219_csv import Ina219CsvOptions
from power.meters.monsoon_hvpm import HvpmOptions
from power.meters.monsoon_lvpm import LvpmOptions
from power.meters.replay import ReplayOptions
from power.wire.ina219.csv_rows import CsvFormat
from tests.conftest import REPOSITORY
from tests.power.synthetic import block, write_recording

POWER, EMULATED, RECORDINGS = (
    (REPOSITORY / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("power", "emulated-meters", "recordings")
)

OPTIONS = {
    "monsoon-lvpm": LvpmOptions,
    "monsoon-hvpm": HvpmOptions,
    "ina219": Ina219Options,
    "ina219-csv": Ina219CsvOptions,
    "replay": ReplayOptions,
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_of_a_driver_with_its_default(kind: str) -> None:
    model: type[BaseModel] = OPTIONS[kind]
    section = POWER[POWER.index("## Options of the drivers") :]
    rows = section[section.index(f"| `{kind}` |") :]
    for name, field in model.model_fields.items():
        (shown,) = re.findall(rf"^\| [^|]*\| `{name}` \| ([^|]*) \|", rows, re.MULTILINE)[:1]
        text = "none" if field.default is None else str(field.default).lower()
        assert shown.strip("`").lower() in (text, text.removesuffix(".0")), name
    for csv_format in CsvFormat:
        assert f"`{csv_format.value}`" in POWER


def test_every_signal() -> None:
    rows = re.findall(r"^\| `((\w+):[^`]*)` \|.*\| (.*) \|$", EMULATED, re.MULTILINE)
    assert [kind for _, kind, _ in rows] == list(_SIGNALS)
    for example, kind, settings in rows:
        for name in set(_SIGNALS[kind]) - {"voltage"}:
            assert f"`{name}`" in settings, (kind, name)
        if kind not in ("process", "recording"):
            parse_signal(example)


def test_every_option_variant_and_fault_of_an_emulated_meter() -> None:
    words = {*lvpm._WORDS, *hvpm._WORDS, *CsvFormat, *FaultKind}
    assert {word for word in words if f"`{word}`" not in EMULATED} == set()
    options = {option for parameter in meter.commands["emulate"].params for option in parameter.opts}
    common = {"--json", "--verbose", "-v", "kind"}
    assert {option for option in options - common if f"`{option}" not in EMULATED} == set()


def test_the_program_runs(tmp_path: Path) -> None:
    write_recording(tmp_path / "first", [block([0.5] * 2500)])
    (program,) = re.findall(r"```python\n(.*?)```", RECORDINGS, re.DOTALL)
    program += "assert abs(peak_w - 2.0) < 1e-6\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["synthetic emulated", "second 0 2.0", "second 1 2.0"]
