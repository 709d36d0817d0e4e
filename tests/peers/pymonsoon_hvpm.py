"""The vendor's package (Monsoon 0.1.88), unmodified, as a client of an emulated unit.

Run by the interpreter of the peers' environment with this repository on its path::

    python tests/peers/pymonsoon_hvpm.py ADDRESS MODEL CHANNEL

where MODEL is hv or lv and CHANNEL main, usb or aux. Prints one line of JSON with what the package saw.
"""

from __future__ import annotations

import json
import sys

import usb.backend.libusb1
import usb.core
import usb.util
from Monsoon import HVPM, LVPM, Operations, sampleEngine

from tests.peers.emulated_backend import EmulatedBackend

SAMPLES = 3000
CALIBRATION_MS = 40


def summary(values: list[float]) -> dict[str, float]:
    return {"n": len(values), "mean": sum(values) / len(values), "min": min(values), "max": max(values)}


def main(address: str, model: str, channel: str) -> None:
    # pyusb asks this module for a backend first; the package never gets to know.
    usb.backend.libusb1.get_backend = lambda find_library=None: EmulatedBackend(address)
    device = usb.core.find(idVendor=0x2AB9, backend=EmulatedBackend(address))
    (interface,) = device.get_active_configuration()
    seen = {"product": device.product, "endpoints": [endpoint.bEndpointAddress for endpoint in interface]}
    usb.util.dispose_resources(device)
    monitor = (HVPM if model == "hv" else LVPM).Monsoon()
    serials = monitor.enumerateDevices()
    monitor.setup_usb(int(serials[0]))
    monitor.setVout(4.2)
    monitor.setPowerupTime(30)
    if model == "hv":  # LVPM.setRunTimeCurrentLimit of the package raises AttributeError
        monitor.setRunTimeCurrentLimit(3.0)
        monitor.setTemperatureLimit(55.5)
    monitor.setUSBPassthroughMode(Operations.USB_Passthrough.Off)
    monitor.setVoltageChannel(1 if channel == "aux" else 0)
    monitor.fillStatusPacket()
    engine = sampleEngine.SampleEngine(monitor)
    engine.ConsoleOutput(boolValue=False)
    for name in ("USBCurrent", "AuxCurrent", "USBVoltage"):
        engine.enableChannel(getattr(sampleEngine.channels, name))
    engine.startSampling(SAMPLES, calTime=CALIBRATION_MS)
    samples = engine.getSamples()
    voltage_word = monitor.Protocol.getValue(Operations.OpCodes.setMainVoltage, 4)
    monitor.closeDevice()
    status = {
        name: getattr(monitor.statusPacket, name)
        for name in ("firmwareVersion", "serialNumber", "powerupTime", "runtimeCurrentLimit", "hardwareModel")
    }
    columns = dict(zip(("time", "main_ma", "usb_ma", "aux_ma", "main_v", "usb_v"), samples, strict=True))
    result = {
        "seen": seen,
        "serials": serials,
        "status": status,
        "temperature_limit_c": monitor.statusPacket.temperatureLimit,
        "output_v": voltage_word / Operations.Conversion.FLOAT_TO_INT,
        **{name: summary(values) for name, values in columns.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
