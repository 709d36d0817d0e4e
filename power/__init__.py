"""Power instruments: what they say, stored; joules with their uncertainty; profiles of devices.

The usual names are here. More is one door further: `power.meters` (drivers), `power.recording` (files),
`power.energy` (joules and their uncertainty), `power.profile` (what a device takes), `power.reference`
(phones from published facts), `power.emulated` (instruments without hardware), `power.wire` (their bytes).
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "power.energy.index": ("integrate_recording",),
        "power.energy.windows": ("Window",),
        "power.importers.powertool_csv": ("import_powertool_csv",),
        "power.meter": ("METERS", "MeterConfig", "PowerMeter", "open_meter"),
        "power.meters.scan": ("scan_instruments",),
        "power.model": ("Finding", "FindingLog", "InstrumentInfo", "SampleBlock", "Severity"),
        "power.profile.model": ("DeviceProfile", "load_profile"),
        "power.recording.csv_export": ("write_samples_csv",),
        "power.recording.reader": ("Recording", "open_recording"),
        "power.recording.recorder": ("record",),
        "power.recording.records": ("RecordingRecord",),
        "power.recording.redecode": ("compare_with_raw",),
        "power.recording.salvage": ("salvage_recording",),
        "power.reference.fleet": ("reference_fleet",),
        "power.selftest": ("CalibrationRecord", "run_selftest"),
    },
)
