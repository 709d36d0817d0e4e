from power.energy.recorded import measure_energy
from power.energy.windows import Window
from power.importers.files import import_recording
from power.meter import METERS, MeterConfig, PowerMeter, open_meter
from power.meters.scan import scan_instruments
from power.model import Finding, FindingLog, InstrumentInfo, SampleBlock, Severity
from power.profile.model import DeviceProfile, load_profile
from power.recording.csv_export import write_samples_csv
from power.recording.reader import Recording, open_recording
from power.recording.recorder import record
from power.recording.records import RecordingRecord
from power.recording.redecode import compare_with_raw
from power.recording.salvage import salvage_recording
from power.reference.fleet import reference_fleet
from power.selftest import SelftestRecord, run_selftest

__all__ = [
    "METERS", "DeviceProfile", "Finding", "FindingLog", "InstrumentInfo", "MeterConfig", "PowerMeter",
    "Recording", "RecordingRecord", "SampleBlock", "SelftestRecord", "Severity", "Window",
    "compare_with_raw", "import_recording", "load_profile", "measure_energy", "open_meter",
    "open_recording", "record", "reference_fleet", "run_selftest", "salvage_recording",
    "scan_instruments", "write_samples_csv",
]  # fmt: skip
