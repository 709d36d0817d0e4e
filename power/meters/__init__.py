"""Drivers, one file per instrument; `power.meter.METERS` lists them. The names here help to write another."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "power.meter": ("RawSink",),
        "power.meters.safety": ("OutputControl", "OutputSetting", "require_safe_voltage", "switch_output_on"),
        "power.meters.serial_port": ("SerialPort", "scan_ports"),
        "power.meters.streaming": ("StreamingMeter",),
        "power.meters.usb_link": ("UsbLink",),
        "power.model": ("Accuracy", "RangeAccuracy"),
        "power.timebase": ("Timebase",),
    },
)
