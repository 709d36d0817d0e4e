"""Telemetry of a round: stored as a table, and what it says about heat and throttling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from device_agents import JobRecord
from device_agents.protocol import EpochMarker, Phase, Sources, Telemetry
from harness.evidence.capture import TELEMETRY, Temperature
from joulefleet.runstore import TableWriter

_THROTTLED_NOW = 0b1111
"""Bits of the Raspberry Pi's flags that are about now; those from 16 on are history since boot."""

Sample = dict[str, tuple[float | None, ...]]


def write_telemetry(folder: Path, record: JobRecord) -> bool:
    """Store the telemetry of a job as ``telemetry.parquet``. Returns whether there was any."""
    sources = record.telemetry_of(Sources)
    samples = record.telemetry_of(Telemetry)
    if not sources or not samples:
        return False
    import pyarrow as pa

    columns = [
        (name, i, f"{name}[{part}]") for name, ps in sources[0].columns.items() for i, part in enumerate(ps)
    ]
    schema = pa.schema([("t_dev_ns", pa.int64()), *((label, pa.float64()) for _, _, label in columns)])
    with TableWriter(folder, TELEMETRY, schema) as table:
        table.append(
            {
                "t_dev_ns": [sample.t_dev_ns for sample in samples],
                **{label: [_value(s.values, name, i) for s in samples] for name, i, label in columns},
            }
        )
    return True


def _value(values: Sample, name: str, part: int) -> float | None:
    column = values.get(name, ())
    return column[part] if part < len(column) else None


@dataclass(frozen=True, slots=True)
class Heat:
    """What telemetry says about temperature and throttling.

    Attributes:
        temperature: Of the hottest sensor; None without one.
        throttled_epochs: Epochs during which the device was slowed down.
        throttling_known: Whether the device told when it was, to the end of the last epoch.
    """

    temperature: Temperature | None
    throttled_epochs: tuple[int, ...]
    throttling_known: bool


def read_heat(samples: Sequence[Telemetry], markers: Sequence[EpochMarker]) -> Heat:
    """Look at the telemetry of a round.

    An epoch counts as throttled if a sample inside it, or the one right before or after it, says so: slow
    telemetry must not hide a short epoch.
    """
    hottest = [h for s in samples if (h := max(_known(s.values, "temperature_c"), default=None)) is not None]
    temperature = None
    if hottest:
        temperature = Temperature(first_c=hottest[0], last_c=hottest[-1], max_c=max(hottest))
    starts = {m.epoch: m.t_dev_ns for m in markers if m.kind is Phase.EPOCH and m.edge == "start"}
    ends = {m.epoch: m.t_dev_ns for m in markers if m.kind is Phase.EPOCH and m.edge == "end"}
    throttled = tuple(e for e in starts if e in ends and _throttled(_around(samples, starts[e], ends[e])))
    telling = [sample.t_dev_ns for sample in samples if _tells(sample.values)]
    return Heat(temperature, throttled, _reaches(telling, max(ends.values(), default=0)))


def _reaches(times_ns: Sequence[int], end_ns: int) -> bool:
    """Whether samples go on until a moment: they may end before it by as much as they lie apart."""
    apart_ns = max((after - before for before, after in pairwise(times_ns)), default=0)
    return bool(times_ns) and times_ns[-1] + apart_ns >= end_ns


def _around(samples: Sequence[Telemetry], start_ns: int, end_ns: int) -> list[Sample]:
    times = [sample.t_dev_ns for sample in samples]
    first = max((i for i, t in enumerate(times) if t <= start_ns), default=0)
    last = min((i for i, t in enumerate(times) if t >= end_ns), default=len(times) - 1)
    return [sample.values for sample in samples[first : last + 1]]


def _tells(values: Sample) -> bool:
    return any(_known(values, name) for name in ("cpu_cooling_state", "throttle_flags", "throttle_count"))


def _throttled(samples: list[Sample]) -> bool:
    """Whether something was slowed down because of heat or voltage."""
    if not samples:
        return False
    if any(state > 0 for values in samples for state in _known(values, "cpu_cooling_state")):
        return True
    if any(int(flags) & _THROTTLED_NOW for values in samples for flags in _known(values, "throttle_flags")):
        return True
    counts = [sum(_known(values, "throttle_count")) for values in samples]
    return counts[-1] > counts[0]


def _known(values: Sample, name: str) -> list[float]:
    return [value for value in values.get(name, ()) if value is not None]
