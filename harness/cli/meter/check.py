"""``joulefleet meter emulate | output | selftest``: what one does at the bench."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output
from harness.cli.meter.options import out_option, with_meter
from harness.cli.terminal import echo, style
from joulefleet.config import validate
from joulefleet.errors import EXIT_METER, MeterError

if TYPE_CHECKING:
    from power import MeterConfig, SelftestRecord


@click.command("emulate", cls=Command)
@click.argument("kind")
@click.option("--signal", help="The load, e.g. square:low=0.1,high=0.5,period=1 (amperes, volts, seconds).")
@click.option("--fault", "faults", multiple=True, metavar="KIND@SECONDS[:AMOUNT]", help="Repeatable.")
@click.option("--rate", "rate_hz", type=float, help="Samples per second; else the instrument's own.")
@click.option("--skew", "skew_ppm", type=float, help="How far its crystal is off, parts per million.")
@click.option("--tau", "tau_s", type=float, help="Time constant of the supply's regulator, seconds.")
@click.option("--noise", "noise_a", type=float, help="White noise of the current, amperes.")
@click.option("--seed", type=int, help="Seed of the noise.")
@click.option("--gain", type=float, help="It reads so many times the true current.")
@click.option("--offset", "offset_a", type=float, help="And so many amperes more.")
@click.option("--voltage-gain", type=float, help="The same for the voltage.")
@click.option("--voltage-offset", "voltage_offset_v", type=float, help="The same, in volts.")
@click.option("--serial", help="Serial number it reports.")
@click.option("--variant", help="Which wire format or model, where an instrument has several.")
@click.option("--truth", type=click.Path(path_type=Path, dir_okay=False), help="Keep the true load here.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="How long; else until Ctrl-C.")
def emulate(kind: str, seconds: float | None, **options: Any) -> Output:
    """Emulate a KIND of meter and print the address to connect to.

    With --json the address is the first line on its own, and the counters follow at the end.
    """
    from harness.cli.progress import stop_on_signals
    from power.emulated import EmulatorOptions, build_emulator, serve

    given = {key: value for key, value in options.items() if value is not None}
    emulator = build_emulator(kind, validate(given, EmulatorOptions, name="the emulator's options"))
    try:
        with stop_on_signals() as stop:
            if click.get_current_context().meta.get("as_json"):
                echo(json.dumps({"address": emulator.address}))
            else:
                echo(f"{kind} at {emulator.address} (Ctrl-C ends it)")
            if seconds is not None:
                timer = threading.Timer(seconds, stop.set)
                timer.daemon = True  # Ctrl-C does not wait for it
                timer.start()
            serve(emulator, stop)
        counters = emulator.statistics
    finally:
        emulator.close()
    text = ", ".join(f"{key} {value:,}" for key, value in counters.items())
    return Output({"address": emulator.address, "statistics": counters}, text)


@click.command("output", cls=Command)
@with_meter
@click.option("--set", "voltage_v_to_set", type=float, metavar="VOLTS", help="Switch the output on at this.")
@click.option("--off", is_flag=True, help="Switch the output off.")
@click.option("--yes", is_flag=True, help="Really do it.")
def output(config: MeterConfig, voltage_v_to_set: float | None, off: bool, yes: bool) -> Output:
    """Switch the output of a meter on or off: the only command that does.

    A voltage above the device's --voltage-max is refused. --set first gives the instrument the device's
    current limit, for its power-up too, and goes no further if the instrument keeps a higher one.
    """
    from power import open_meter
    from power.meters import OutputControl, OutputSetting, require_safe_voltage, switch_output_on

    if off == (voltage_v_to_set is not None):
        raise click.UsageError("either --set VOLTS or --off")
    if voltage_v_to_set is not None:
        require_safe_voltage(config, voltage_v_to_set)
    plan = (
        "switch the output off" if voltage_v_to_set is None else f"put {voltage_v_to_set:g} V on the output"
    )
    if not yes:
        raise click.UsageError(
            f"this would {plan}, whatever is connected. Check the wiring, then repeat it with --yes"
        )
    with open_meter(config, any_settings=True) as opened:
        if not isinstance(opened, OutputControl):
            raise MeterError(f"{config.kind}: has no output to switch", hint="it only measures")
        setting: OutputSetting | None = None
        if voltage_v_to_set is None:
            opened.switch_output_off()
        else:
            setting = switch_output_on(opened, config, voltage_v_to_set)
    text = "output off"
    if setting is not None:
        text = f"output on, set to {setting.voltage_v:.3f} V, cut at {setting.limits.run_time_a:.3f} A"
    data = {
        "output_on": setting is not None,
        "voltage_v": setting.voltage_v if setting else None,
        "run_time_limit_a": setting.limits.run_time_a if setting else None,
        "power_up_limit_a": setting.limits.power_up_a if setting else None,
    }
    return Output(data, text)


@click.command("selftest", cls=Command)
@with_meter
@click.option("--load-ohms", type=click.FloatRange(min=0, min_open=True), required=True, help="The resistor.")
@click.option(
    "--tolerance",
    "tolerance_pct",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="Largest error that passes, percent; the resistor's own tolerance included.",
)
@click.option("--seconds", type=click.FloatRange(min=1), default=10.0, show_default=True, help="How long.")
@click.option("--step", "step_seconds", type=click.FloatRange(min=1), metavar="SECONDS",
              help="Then record for so long while you connect the load, for the step response.")  # fmt: skip
@out_option
def selftest(
    config: MeterConfig,
    load_ohms: float,
    tolerance_pct: float,
    seconds: float,
    step_seconds: float | None,
    out: Path,
) -> Output:
    """Test a meter against a known resistor on its output: accuracy, rate, loss, step response.

    The output is never switched: put the voltage on first. Writes selftest.json with what was measured.
    """
    from harness.cli.progress import LivePower
    from power import run_selftest

    with LivePower("self-test", seconds + (step_seconds or 0.0)) as live:
        result = run_selftest(
            config,
            out,
            load_ohms=load_ohms,
            tolerance_rel=tolerance_pct / 100,
            seconds=seconds,
            step_seconds=step_seconds,
            on_block=live,
            before_step=lambda: click.pause("disconnect the load, press a key, then connect it", err=True),
        )
    return _tested(result, out)


def _tested(result: SelftestRecord, folder: Path) -> Output:
    load, step = result.load, result.step
    data = {
        **result.model_dump(mode="json"),
        "sha256": result.sha256(),
        "passed": result.passed,
        "folder": str(folder),
    }
    should = f"{load.load_ohms:g} ohms should draw {load.expected_current_a:.6f} A"
    error = f"{load.error_rel:+.3%} (range {load.range_name})"
    loss = "unknown" if load.loss_fraction is None else f"{load.loss_fraction:.4%}"
    lines = [
        f"{load.current_a:.6f} A at {load.voltage_v:.4f} V; {should}: {error}",
        f"rate {load.rate_offset_ppm:+.0f} ppm, unsure by {load.rate_unsure_ppm:.0f} ppm",
        f"loss {loss}, noise {load.current_sd_a:.6f} A",
    ]
    if step is not None:
        lines.append(f"step: rises in {step.rise_s * 1e3:.3f} ms, settles in {step.settle_s * 1e3:.3f} ms")
    lines += [style(problem, fg="red") for problem in load.problems]
    lines.append(style("passed", fg="green") if result.passed else style("failed", fg="red"))
    return Output(data, lines, exit_code=0 if result.passed else EXIT_METER)
