"""Runs of the INA219 protocol, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from power.wire.decoder import Decoded
from power.wire.ina219.decoder import Ina219Decoder
from power.wire.ina219.frames import COLUMNS, PROTOCOL, VERSION, Flags, Header, data_line, header_line

PERIOD_US = 1064
SHUNT_OHM = 0.1


def header(**changes: Any) -> Header:
    facts: dict[str, Any] = {
        "proto": PROTOCOL,
        "ver": VERSION,
        "fw": "test",
        "uid": "T1",
        "chip": "INA219",
        "grade": "A",
        "addr": 0x40,
        "rshunt_uohm": round(SHUNT_OHM * 1e6),
        "rshunt_tol_ppm": 10_000,
        "config": 0x399F,
        "cal": 4096,
        "period_us": PERIOD_US,
        "clock_hz": 1_000_000,
        "columns": COLUMNS,
        "run": 1,
        "t_us": 0,
    }
    return Header.model_validate({**facts, **changes})


def conversion(seq: int, *, start_us: int = 0, flags: int = Flags.CNVR, shunt: int | None = None) -> bytes:
    """Conversion number ``seq``: a current and voltage that tell it from its neighbours."""
    t_us = (start_us + (seq + 1) * PERIOD_US) % (1 << 32)
    shunt_raw = shunt if shunt is not None else (seq * 7919) % 60_001 - 30_000
    bus_raw = (seq * 13) % 6000 << 3 | flags & 3
    return data_line(seq % (1 << 32), t_us, shunt_raw, bus_raw, flags)


def run(count: int, *, start_us: int = 0) -> list[bytes]:
    """The lines of a clean run: its header, then conversions."""
    return [header_line(header(t_us=start_us)), *(conversion(i, start_us=start_us) for i in range(count))]


def decode(data: bytes, portion: int = 1 << 20) -> tuple[list[Decoded], Ina219Decoder]:
    decoder = Ina219Decoder()
    blocks: list[Decoded] = []
    for start in range(0, len(data), portion):
        blocks += decoder.feed(data[start : start + portion], start)
    return blocks, decoder


def columns(blocks: list[Decoded]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Index, tick, current and voltage of every sample."""
    index = [np.arange(b.first_index, b.first_index + len(b.ticks)) for b in blocks]
    parts = [(i, b.ticks, b.current_a, b.voltage_v) for i, b in zip(index, blocks, strict=True)]
    empty = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))]
    return tuple(np.concatenate(column) for column in zip(*(parts or empty), strict=True))  # type: ignore[return-value]


def codes(decoder: Ina219Decoder) -> dict[str, int]:
    return {finding.code: finding.count for finding in decoder.findings}
