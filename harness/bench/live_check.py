"""Is everything connected? Device and meter are tried at the same time, and what is missing is named."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from device_agents import AgentSession, Ping
from harness.bench.matrix import plan_devices
from harness.inventory import Device, Inventory, connect, installation
from joulefleet.errors import ConfigError, DeviceError, JoulefleetError, MeterError, describe
from power import MeterConfig, PowerMeter, SampleBlock, open_meter
from power.calibrate import live_correction
from power.meters import OutputControl, OutputSetting, RefusesSettings

if TYPE_CHECKING:
    from device_agents.protocol import Hello
    from harness.bench.plan import Plan

log = logging.getLogger(__name__)

LIVE_S = 2.0
"""How long the watts are read: enough for a mean that a person believes, short enough for ten seconds."""

WAIT_S = 30.0


@dataclass(slots=True)
class DeviceAnswer:
    """What the device said; ``error`` if it did not."""

    hello: Hello | None = None
    pings: tuple[Ping, ...] = ()
    error: JoulefleetError | None = None


@dataclass(slots=True)
class MeterAnswer:
    """What the meter said.

    Attributes:
        kind: What it is.
        serial: Its number.
        power_w: Mean power.
        current_a: Mean current.
        voltage_v: Mean voltage.
        floor_a: Currents below this are the instrument's own error: nothing flows.
        after_s: How long the first sample took.
        output: What its output is set to, if it has one.
    """

    kind: str = ""
    serial: str = ""
    emulated: bool = False
    power_w: float | None = None
    current_a: float = 0.0
    voltage_v: float = 0.0
    floor_a: float = 0.0
    after_s: float | None = None
    output: OutputSetting | None = None
    error: JoulefleetError | None = None


def check_both(
    device: Device, inventory_path: Path, meter: MeterConfig | None, count: int
) -> tuple[DeviceAnswer, MeterAnswer | None]:
    """Try the device and its meter at the same time."""
    device_answer, meter_answer = DeviceAnswer(), MeterAnswer()
    threads = [threading.Thread(target=_try_device, args=(device, inventory_path, count, device_answer))]
    if meter is not None:
        threads.append(threading.Thread(target=_try_meter, args=(meter, meter_answer)))
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join()
    return device_answer, meter_answer if meter is not None else None


def _try_device(device: Device, inventory_path: Path, count: int, answer: DeviceAnswer) -> None:
    from device_agents import build_bundle, start_agent

    try:
        with (
            connect(device, inventory_path) as transport,
            start_agent(transport, build_bundle(), installation(device)) as channel,
        ):
            session = AgentSession(channel)
            answer.pings = tuple(session.ping(count))
            answer.hello = session.hello
    except Exception as error:
        answer.error = _explained(error, DeviceError)


def _try_meter(config: MeterConfig, answer: MeterAnswer) -> None:
    began_s = time.monotonic()
    try:
        with open_meter(config, any_settings=True) as meter:
            answer.kind, answer.serial = meter.info.kind, meter.info.serial
            answer.emulated = meter.info.emulated
            answer.floor_a = meter.info.accuracy.current[0].floor_a
            if isinstance(meter, OutputControl):
                answer.output = meter.output_setting()
            correct = live_correction(meter.info, config.calibration)
            silence = threading.Timer(WAIT_S, meter.stop)
            silence.start()
            try:
                _read(meter, answer, began_s, correct)
            finally:
                silence.cancel()
    except Exception as error:
        answer.error = _explained(error, MeterError)


def _explained(error: Exception, kind: type[JoulefleetError]) -> JoulefleetError:
    """Any error as an answer: one that ends a thread is a traceback to the person and silence to `ping`."""
    if isinstance(error, JoulefleetError):
        return error
    log.info("while trying a device or meter", exc_info=error)
    return kind(f"unexpected {describe(error)}", hint="run again with -v and report the traceback")


def _read(
    meter: PowerMeter,
    answer: MeterAnswer,
    began_s: float,
    correct: Callable[[SampleBlock], SampleBlock],
) -> None:
    """Means of all samples over `LIVE_S`."""
    rows, first_ns = 0, 0
    power_w = current_a = voltage_v = 0.0
    for raw in meter.stream():
        if not len(raw):
            continue
        block = correct(raw)
        if answer.after_s is None:
            answer.after_s, first_ns = time.monotonic() - began_s, int(block.t_ns[0])
        rows += len(block)
        power_w += float(block.power_w.sum(dtype=float))
        current_a += float(block.current_a.sum(dtype=float))
        voltage_v += float(block.voltage_v.sum(dtype=float))
        if int(block.t_ns[-1]) - first_ns >= LIVE_S * 1e9:
            meter.stop()
    if rows:
        answer.power_w, answer.current_a, answer.voltage_v = (
            power_w / rows,
            current_a / rows,
            voltage_v / rows,
        )


def missing_cables(device: DeviceAnswer, meter: MeterAnswer | None) -> list[str]:
    """What is not connected, judging by who answered and whether current flows."""
    if meter is None:
        return []
    if meter.error is not None and meter.kind:
        return []  # it answered, and the error says what is wrong with it
    if meter.error is not None:
        return ["the data cable between this machine and the meter (or its power)"]
    flows = meter.power_w is not None and abs(meter.current_a) > meter.floor_a
    if meter.power_w is None:
        return ["the meter answers and sends no samples: its own power, or its front end"]
    if device.error is None and not flows:
        return ["the supply cable between the meter and the device: it runs, and not through this meter"]
    if device.error is not None and device.error.transient:
        if flows:
            return ["the network to the device: it draws current and does not answer"]
        return ["the supply cable between the meter and the device, or the meter's output is off"]
    return []


def require_ready_meters(plan: Plan, inventory: Inventory) -> None:
    """Refuse a run while a meter is set, or calibrated, so that none of its recordings could begin.

    All meters are asked at the same time. One that cannot be asked now (absent, busy, another instrument) is
    left to its jobs, which try again as the plan says.

    Raises:
        MeterError: Names every such meter, and its device.
        ConfigError: The same for a calibration that belongs to another unit, scaling, channel or range.
    """
    sharing: dict[
        str, list[str]
    ] = {}  # devices that take turns at one instrument, each with limits of its own
    for name in plan_devices(plan, inventory):
        sharing.setdefault(inventory.meter_key(name), []).append(name)
    found: dict[str, tuple[JoulefleetError, ...]] = {}
    threads = [
        threading.Thread(target=_ask_obstacles, args=(names, inventory, found), daemon=True)
        for names in sharing.values()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [(name, error) for name in sorted(found) for error in found[name]]
    if errors:
        first = errors[0][1]
        raise type(first)("; ".join(f"{name}: {error.message}" for name, error in errors), hint=first.hint)


def _misfit(meter: PowerMeter, config: MeterConfig) -> tuple[ConfigError, ...]:
    try:
        live_correction(meter.info, config.calibration)
    except ConfigError as error:
        return (error,)
    return ()


def _ask_obstacles(
    names: list[str], inventory: Inventory, found: dict[str, tuple[JoulefleetError, ...]]
) -> None:
    for name in names:
        config = inventory.meter_of(name)
        if config is None:
            continue
        try:
            with open_meter(config, any_settings=True) as meter:
                settings = meter.obstacles() if isinstance(meter, RefusesSettings) else ()
                found[name] = (*settings, *_misfit(meter, config))
        except Exception as error:  # whatever it is, the job's own attempt says it better
            log.info("%s: its meter cannot be asked yet: %s", name, describe(error))
