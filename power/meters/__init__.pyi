from power.meter import RawSink, RefusesSettings
from power.meters.safety import OutputControl, OutputSetting, require_safe_voltage, switch_output_on
from power.meters.serial_port import SerialPort, scan_ports
from power.meters.streaming import StreamingMeter
from power.meters.usb.link import UsbLink, libusb_version
from power.model import Accuracy, RangeAccuracy
from power.timebase import Timebase

__all__ = [
    "Accuracy", "OutputControl", "OutputSetting", "RangeAccuracy", "RawSink", "RefusesSettings",
    "SerialPort", "StreamingMeter", "Timebase", "UsbLink", "libusb_version", "require_safe_voltage",
    "scan_ports", "switch_output_on",
]  # fmt: skip
