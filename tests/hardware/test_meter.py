"""A real meter on the bench, with the same checks that the emulated ones pass.

Nothing here changes the output of the instrument. To run it:

1. Connect a resistor of known value to the main output, and mind its power rating: 10 ohms at 4 V turn
   1.6 W into heat. Switch the output on with ``joulefleet meter output ... --set 4 --yes``.
2. Describe the meter in a TOML file, with the limits of that resistor::

       kind = "monsoon-lvpm"
       port = "/dev/ttyACM0"
       voltage_v = 4.0
       voltage_max_v = 4.2
       current_limit_a = 1.0

3. Set ``JOULEFLEET_HARDWARE_METER`` to that file and ``JOULEFLEET_HARDWARE_OHMS`` to the resistor, then run
   ``python -m pytest -m hardware tests/hardware``.

``JOULEFLEET_HARDWARE_TOLERANCE`` (percent, default 2) is the largest error of the current that passes, and
``JOULEFLEET_HARDWARE_SECONDS`` (default 30) is how long each test records.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from joulefleet.config import load_toml
from joulefleet.errors import MeterBusy, UnsafeOutput
from joulefleet.provenance import Origin
from power.meter import MeterConfig, open_meter
from power.meters.safety import OutputControl
from power.model import Severity
from power.recording import Recording, open_recording
from power.recording.recorder import record
from power.recording.redecode import compare_with_raw
from power.selftest import measure_load

pytestmark = pytest.mark.hardware

SECONDS = float(os.environ.get("JOULEFLEET_HARDWARE_SECONDS", "30"))


@pytest.fixture(scope="module")
def config() -> MeterConfig:
    path = os.environ.get("JOULEFLEET_HARDWARE_METER")
    if not path:
        pytest.skip("JOULEFLEET_HARDWARE_METER is not set: this test needs a real meter, see the file's text")
    return load_toml(Path(path), MeterConfig)


@pytest.fixture(scope="module")
def load_ohms() -> float:
    value = os.environ.get("JOULEFLEET_HARDWARE_OHMS")
    if not value:
        pytest.skip("JOULEFLEET_HARDWARE_OHMS is not set: which resistor is connected?")
    return float(value)


@pytest.fixture(scope="module")
def recording(config: MeterConfig, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("hardware") / "recording"
    with open_meter(config) as meter:
        record(meter, folder, config=config, seconds=SECONDS)
    return open_recording(folder)


def test_it_is_real_and_says_who_it_is(config: MeterConfig) -> None:
    with open_meter(config) as meter:
        info = meter.info
    assert not info.emulated
    assert info.kind == config.kind
    assert not config.serial or info.serial == config.serial


def test_known_resistor(recording: Recording, load_ohms: float) -> None:
    tolerance = float(os.environ.get("JOULEFLEET_HARDWARE_TOLERANCE", "2")) / 100
    result = measure_load(recording, load_ohms=load_ohms, tolerance_rel=tolerance)
    print(result.model_dump_json(indent=2))
    assert result.problems == ()


def test_samples_are_complete_and_counted(recording: Recording) -> None:
    done = recording.record
    expected = SECONDS * done.info.rate_hz
    assert done.n_samples + (done.dropped or 0) == pytest.approx(expected, rel=0.02)
    assert not [finding for finding in done.findings if finding.severity is Severity.ERROR]


def test_times_are_regular(recording: Recording) -> None:
    for block in recording.blocks():
        assert (np.diff(block.t_ns) > 0).all()


def test_raw_bytes_give_the_stored_samples(recording: Recording) -> None:
    again = compare_with_raw(recording)
    assert again.first_difference is None
    assert again.n_decoded == again.n_stored


def test_what_it_measures_may_be_called_measured(recording: Recording) -> None:
    assert recording.record.provenance("bench").origin is Origin.MEASURED


def test_a_second_client_is_refused(config: MeterConfig) -> None:
    with open_meter(config), pytest.raises(MeterBusy):
        open_meter(config)


def test_a_voltage_above_the_limit_is_refused(config: MeterConfig) -> None:
    with open_meter(config) as meter:
        if not isinstance(meter, OutputControl):
            pytest.skip(f"a {config.kind} has no output")
        with pytest.raises(UnsafeOutput):
            meter.set_voltage(config.voltage_max_v + 0.01)


def test_the_output_is_as_it_was(config: MeterConfig, recording: Recording, tmp_path: Path) -> None:
    """Opening, streaming and closing, several times over, leave the voltage on."""
    before = np.mean([block.voltage_v.mean() for block in recording.blocks()])
    with open_meter(config) as meter:
        record(meter, tmp_path / "again", config=config, seconds=2.0)
    after = np.mean([block.voltage_v.mean() for block in open_recording(tmp_path / "again").blocks()])
    assert after == pytest.approx(before, rel=0.02)
