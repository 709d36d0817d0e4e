"""The work order as the agent understands it. The host's side of it is `device_agents.job`."""
# ruff: noqa: RUF009 - `_entry` is dataclasses.field with a parser

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Callable

from device_agents.payload.faults import JobFault
from device_agents.payload.interference import LoadSpec, parse_load
from device_agents.payload.link.wire import MAX_BLOB_BYTES
from device_agents.payload.sync_pattern import Pattern

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BlobSpec:
    """Bytes known by their hash."""

    sha256: str
    size: int


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high} is needed")
        return value

    return parse


def _real(low: float, high: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise ValueError(f"a number from {low} to {high} is needed")
        return float(value)

    return parse


def _choice(*known: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in known:
            raise ValueError(f"one of {', '.join(known)} is needed")
        return str(value)

    return parse


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("true or false is needed")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or not 0 < len(value) <= 64:
        raise ValueError("a short text is needed")
    return value


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else parse(value)


def _blob(value: Any) -> BlobSpec:
    if not _SHA256.fullmatch(value["sha256"]):
        raise ValueError("a sha256 is needed")
    return BlobSpec(value["sha256"], _whole(0, MAX_BLOB_BYTES)(value["size"]))


def _graphs(value: Any) -> dict[int, BlobSpec]:
    return {int(size): _blob(ref) for size, ref in value.items()}


_DAY_S = 86_400.0


def _entry(parse: Callable[[Any], Any]) -> Any:
    return field(metadata={"parse": parse})


@dataclass(frozen=True)
class JobSpec:
    """One job; `device_agents.job.Job` says what each entry means."""

    workload: str = _entry(_text)
    backend: str = _entry(_choice("numpy", "torch", "onnxruntime"))
    samples: int = _entry(_whole(1, 10_000_000))
    epochs: int = _entry(_whole(1, 10_000))
    warmup_epochs: int = _entry(_whole(0, 10_000))
    batch_size: int = _entry(_whole(0, 1_000_000))
    learning_rate: float | None = _entry(_optional(_real(0, 1000)))
    momentum: float | None = _entry(_optional(_real(0, 1)))
    seed: int = _entry(_whole(0, 2**63 - 1))
    threads: int = _entry(_whole(0, 1024))
    probe: bool = _entry(_flag)
    upload: bool = _entry(_flag)
    quiet: bool = _entry(_flag)
    on_disconnect: str = _entry(_choice("stop", "finish"))
    deadline_s: float = _entry(_real(0.001, 7 * _DAY_S))
    decision_timeout_s: float = _entry(_real(0.001, _DAY_S))
    telemetry_hz: float = _entry(_real(0, 5))
    power_hz: float = _entry(_real(0, 1000))
    sync: Pattern | None = _entry(_optional(Pattern.parse))
    background: LoadSpec | None = _entry(_optional(parse_load))
    load_only_s: float = _entry(_real(0, _DAY_S))
    temperature_max_c: float | None = _entry(_optional(_real(-100, 200)))
    battery_min_level: float | None = _entry(_optional(_real(0, 1)))
    model: BlobSpec | None = _entry(_optional(_blob))
    shard: BlobSpec | None = _entry(_optional(_blob))
    graphs: dict[int, BlobSpec] = _entry(_graphs)
    task: BlobSpec | None = _entry(_optional(_blob))


def parse_job(message: dict[str, Any]) -> JobSpec:
    """The spec in a ``job`` message.

    Raises:
        JobFault: ``bad_job``; says which entry is wrong.
    """
    wanted = {key: value for key, value in message.items() if key not in ("type", "seq", "job_id")}
    entries = {entry.name: entry.metadata["parse"] for entry in fields(JobSpec)}
    unknown = set(wanted) - set(entries)
    missing = set(entries) - set(wanted)
    if unknown or missing:
        wrong = ", ".join(sorted(unknown)) or ", ".join(sorted(missing))
        raise JobFault("bad_job", f"job: {'unknown' if unknown else 'missing'} entries: {wrong}")
    return JobSpec(**{name: _parsed(name, parse, wanted[name]) for name, parse in entries.items()})


def _parsed(name: str, parse: Callable[[Any], Any], value: Any) -> Any:
    try:
        return parse(value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise JobFault("bad_job", f"job: {name} is {value!r:.80} ({error})") from error
