"""Class 4: a meter's bytes. What is delivered as a sample is a sample that was sent, at its own time.

Damage here does not respect packets, and every delivered sample is compared with the one that was sent: its
number, its current, its voltage. Where a format lets nobody tell (a checksum that fits by chance), the bytes
that are blamed are shown to be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from power.importers.files import import_recording
from power.recording import open_recording
from power.wire.decoder import Decoded
from power.wire.hvpm import HvpmDecoder
from power.wire.ina219.frames import crc16
from power.wire.lvpm import LvpmDecoder
from tests.campaign import Batches
from tests.power import hvpm_streams, ina219_runs, lvpm_reference

Rng = np.random.Generator

PACKETS = 1_200
UNHARMED = (
    450  # packets in the beginning: a calibration or header, and the half second in which the pace is learned
)
APART = 12  # packets between two damages: more than any decoder needs to find back
CALIBRATED_EVERY = 200  # packets, of an LVPM: far more often than it does, so that damage meets calibrations
LONGEST = 3  # packets that one damage spans; counters of four bits tell losses up to 15


class Truth:
    """What was sent: amperes and volts of every sample, by number."""

    def __init__(self, samples: dict[int, tuple[float, float]]) -> None:
        self.number = np.array(sorted(samples))
        self.values = np.array([samples[i] for i in self.number.tolist()]).T
        self.known = {(round(amps, 9), round(volts, 9)): i for i, (amps, volts) in samples.items()}


@dataclass(frozen=True)
class Stream:
    """What was sent: packets, and the samples in them by number."""

    packets: list[bytes]
    truth: Truth
    row_ns: int
    rows: list[int]

    def portion(self, data: bytes, packets: int) -> Portion:
        """Bytes that are there when so many packets were sent."""
        return Portion(data, self.row_ns * sum(self.rows[:packets]))


def lvpm(rng: Rng) -> Stream:
    rows = [
        [(int(r) & ~1 | int(c), 5, -5, int(v) & 0xFFFC) for r, c, v in zip(*columns, strict=True)]
        for columns in zip(
            rng.integers(200, 19_000, (PACKETS, 7)), rng.integers(0, 2, (PACKETS, 7)),
            rng.integers(20_000, 36_000, (PACKETS, 7)), strict=True,
        )
    ]  # fmt: skip
    packets: list[bytes] = []
    for samples in rows:
        if len(packets) % CALIBRATED_EVERY < 2:
            make = lvpm_reference.reference_packet if len(packets) % 2 else lvpm_reference.zero_packet
            packets.append(make(len(packets)))
        else:
            packets.append(lvpm_reference.packet(len(packets), 0, samples))
    slow = lvpm_reference.decode_slowly(b"".join(packets))
    truth = Truth({number: (amps, volts) for number, amps, volts in slow.samples})
    return Stream(packets, truth, 200_000, [(len(one) - 7) // 8 for one in packets])


def hvpm(rng: Rng) -> Stream:
    maker = hvpm_streams.StreamMaker(rng, sizes=(3,), calibration_every=5)
    maker.add(UNHARMED - 2)
    maker.calibration_every = 10**9  # a lost calibration changes, rightly, all that follows
    maker.add(PACKETS - UNHARMED)
    maker.finish()
    slow = hvpm_streams.SlowDecoder("hv").decode(maker.data)
    truth = Truth({tick: (amps, volts) for tick, amps, volts, _ in slow})
    return Stream(maker.packets, truth, 200_000, [3] * len(maker.packets))


def ina219(rng: Rng) -> Stream:
    truth = {}
    for i in range(PACKETS):
        shunt_v, bus_v = ((i * 7919) % 60_001 - 30_000) * 10e-6, (i * 13) % 6000 * 4e-3
        truth[i] = (shunt_v / ina219_runs.SHUNT_OHM, bus_v)
    return Stream(ina219_runs.run(PACKETS), Truth(truth), ina219_runs.PERIOD_US * 1000, [1] * PACKETS)


# Damages: what happens to the bytes of a few packets.


def lose(piece: bytes, rng: Rng, earlier: bytes) -> bytes:
    """A buffer ran over: bytes are gone, from anywhere to anywhere."""
    a, b = np.sort(rng.integers(0, len(piece) + 1, 2))
    return piece[:a] + piece[b:]


def flip(piece: bytes, rng: Rng, earlier: bytes) -> bytes:
    out = np.frombuffer(piece, np.uint8).copy()
    places = rng.integers(0, len(out), int(rng.integers(1, 6)))
    out[places] ^= (1 << rng.integers(0, 8, len(places))).astype(np.uint8)
    return out.tobytes()


def noise(piece: bytes, rng: Rng, earlier: bytes) -> bytes:
    a, b = np.sort(rng.integers(0, len(piece) + 1, 2))
    return piece[:a] + rng.bytes(int(b - a)) + piece[b:]


def stale(piece: bytes, rng: Rng, earlier: bytes) -> bytes:
    """A buffer is read before it was filled: a part of what came before stands in place of the new."""
    a, b = np.sort(rng.integers(0, len(piece) + 1, 2))
    start = int(rng.integers(0, len(earlier) - (b - a)))
    return piece[:a] + earlier[start : start + b - a] + piece[b:]


def stuck(piece: bytes, rng: Rng, earlier: bytes) -> bytes:
    """One byte again and again: zeros, ones, a line feed, the last."""
    a, b = np.sort(rng.integers(0, len(piece) + 1, 2))
    byte = bytes([int(rng.choice([0, 0xFF, 0x0A, 0x23, piece[a - 1]]))])
    return piece[:a] + byte * int(b - a) + piece[b:]


Damage = Callable[[bytes, Rng, bytes], bytes]
ANYWHERE: tuple[Damage, ...] = (lose, flip, noise, stale, stuck)


def drop(piece: bytes, rng: Rng, earlier: bytes) -> bytes:
    """USB loses packets, not bytes."""
    return b""


@dataclass(frozen=True)
class Portion:
    """Bytes that are read at once, and when."""

    data: bytes
    arrival_ns: int


def damaged(stream: Stream, kinds: tuple[Damage, ...], rng: Rng) -> tuple[list[Portion], int]:
    """The stream with damages all over it, and how many packets were hit."""
    packets, at, hit = stream.packets, UNHARMED, 0
    out = [stream.portion(b"".join(packets[i : i + 10]), i + 10) for i in range(0, UNHARMED, 10)]
    while at + LONGEST + APART < len(packets):
        span = int(rng.integers(1, LONGEST + 1))
        kind = kinds[int(rng.integers(len(kinds)))]
        piece = kind(b"".join(packets[at : at + span]), rng, b"".join(packets[at - 8 : at]))
        after = at + span + APART
        cut = int(rng.integers(0, len(piece) + 1))  # where one read ends and the next begins
        out.append(stream.portion(piece[:cut], at + span))
        out.append(stream.portion(piece[cut:] + b"".join(packets[at + span : after]), after))
        at, hit = after, hit + span
    return [*out, stream.portion(b"".join(packets[at:]), len(packets))], hit


def lvpm_strangers(data: bytes, stream: Stream) -> int:
    """Frames that nobody sent, or not twice, with a right checksum: 8 bits of a sum let many through."""
    sent, size = set(stream.packets), len(stream.packets[-1])
    bytes_ = np.frombuffer(data, np.uint8)
    sums = np.concatenate([[0], np.cumsum(bytes_, dtype=np.int64)])
    at = np.flatnonzero(bytes_[: 1 - size] == size - 1)
    right = at[(sums[at + size - 1] - sums[at]) % 256 == bytes_[at + size - 1]]
    frames = [data[i : i + size] for i in right.tolist()]
    return sum(frame not in sent for frame in frames) + len(frames) - len(set(frames))


def ina219_strangers(data: bytes, stream: Stream) -> int:
    """Lines that nobody sent with a right checksum of 16 bits."""
    sent = {line.strip() for line in stream.packets}
    found = 0
    for line in data.split(b"\n"):
        body, _, checksum = line.strip().rpartition(b"*")
        found += checksum == b"%04X" % crc16(body) and line.strip() not in sent
    return found


def none(data: bytes, stream: Stream) -> int:
    return 0


def new_lvpm() -> LvpmDecoder:
    return LvpmDecoder(voltage_step_v=lvpm_reference.STEP_V, rate_hz=5000.0)


def new_hvpm() -> HvpmDecoder:
    return HvpmDecoder(hvpm_streams.scale_of("hv"))


def new_ina219() -> ina219_runs.Ina219Decoder:
    return ina219_runs.Ina219Decoder()


METERS = {
    "lvpm": (lvpm, new_lvpm, ANYWHERE, lvpm_strangers),
    "ina219": (ina219, new_ina219, ANYWHERE, ina219_strangers),
    "hvpm": (hvpm, new_hvpm, (drop,), none),
}
FULL = {"lvpm": 400_000, "hvpm": 200_000, "ina219": 400_000}
BATCH = 10_000
FINE_REFERENCE_A, FINE_NOISE_A, COARSE_NOISE_A = 0.0332, 100e-6, 2e-3
UNSEEN = 56
"""Samples: half a turn of the sequence number of seven-sample packets, 11 ms. Less looks like a late read."""
MISTAKEN = 5
"""Samples: a lost packet counts as one of data. An LVPM's calibration is that much shorter."""
SAMPLES = {"lvpm": 7, "hvpm": 3, "ina219": 1}
"""Of a packet."""


def mistaken(meter: str, data: bytes, stream: Stream) -> int:
    """By how many samples lost calibrations may move what follows them."""
    short = [one for one in stream.packets if len(one) < 30] if meter == "lvpm" else []
    return sum(MISTAKEN * max(0, count - data.count(one)) for one, count in Counter(short).items())


def decoded(
    decoder: LvpmDecoder | HvpmDecoder | ina219_runs.Ina219Decoder, portions: list[Portion]
) -> list[Decoded]:
    parts = [part for portion in portions for part in decoder.feed(portion.data, portion.arrival_ns)]
    return parts + decoder.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("meter", METERS)
def test_a_sample_that_is_delivered_is_one_that_was_sent(
    meter: str, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    """Wrong values are at most those of frames with a right checksum; wrong times are announced."""
    make, new_decoder, kinds, strangers_in = METERS[meter]
    wanted = campaign_count(1_000, FULL[meter])
    size = min(wanted, BATCH)
    stream = make(np.random.default_rng(4))
    batches = Batches(f"packets-{meter}-{wanted}", -(-wanted // size))
    counts = batches.counts
    for batch in batches:
        rng, hit = np.random.default_rng([4, batch]), 0
        while hit < size:
            portions, packets = damaged(stream, kinds, rng)
            hit += packets
            decoder = new_decoder()
            other, shifts = compare(decoded(decoder, portions), stream.truth, counts)
            data = b"".join(one.data for one in portions)
            strangers = strangers_in(data, stream) if other or shifts else 0
            assert other <= SAMPLES[meter] * strangers, "a sample that was never sent"
            allowed = mistaken(meter, data, stream) if shifts else 0
            assert max(shifts, default=0) <= allowed or strangers, "a sample at another time than its own"
            told = {finding.code for finding in decoder.findings} & {"surplus", "unplaced_gap"}
            assert told or max(shifts, default=0) <= UNSEEN + allowed, "a large shift, and nothing says so"
            counts["streams"] += 1
            counts["samples 1 ms late per lost calibration"] += sum(one <= allowed for one in shifts)
            counts["largest shift, samples"] = max(counts["largest shift, samples"], *shifts, 0)
            counts["samples never sent, under a right checksum"] += other
            counts["samples at a wrong time"] += sum(one > allowed for one in shifts)
        counts["mutated packets"] += hit
    assert counts["samples as sent"] > 0.6 * (counts["samples as sent"] + counts["samples counted as lost"])
    for name, value in batches.facts().items():
        record_property(name, value)


def within_noise(sent: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether an LVPM's current is off by no more than a calibration that is not doubted may move it.

    Zero and reference may each be off by 100 uA in the fine range and 2 mA in the coarse one, which is what
    the driver states as its offset error.
    """
    noise_a = np.where(sent[0] < FINE_REFERENCE_A, 2 * FINE_NOISE_A, 2.5 * COARSE_NOISE_A)
    return (abs(sent[0] - found[0]) <= noise_a) & (abs(sent[1] - found[1]) <= 1e-9)


def compare(parts: list[Decoded], truth: Truth, counts: Counter[str]) -> tuple[int, list[int]]:
    """How many samples were never sent, and how far those are off that were sent at another time."""
    at = 0
    for part in parts:
        assert part.first_index >= at
        at = part.first_index + len(part.ticks)
        counts["samples counted as lost"] += part.dropped_before or 0
    number = np.concatenate([np.arange(one.first_index, one.first_index + len(one.ticks)) for one in parts])
    found = np.stack(
        [np.concatenate([one.current_a for one in parts]), np.concatenate([one.voltage_v for one in parts])]
    )
    place = np.searchsorted(truth.number, number).clip(max=len(truth.number) - 1)
    as_sent = (truth.number[place] == number) & (abs(truth.values[:, place] - found) <= 1e-9).all(axis=0)
    counts["samples as sent"] += int(as_sent.sum())
    near = ~as_sent & (truth.number[place] == number) & within_noise(truth.values[:, place], found)
    counts["samples within the noise of a damaged calibration"] += int(near.sum())
    wrong = zip(number[~as_sent & ~near].tolist(), found[:, ~as_sent & ~near].T.tolist(), strict=True)
    sent = [(i, truth.known.get((round(amps, 9), round(volts, 9)))) for i, (amps, volts) in wrong]
    shifts = [abs(i - known) for i, known in sent if known is not None]
    return len(sent) - len(shifts), shifts


ROWS = {
    "more than 32 bits hold": b"0.401,1e308,4.0,",
    "minus that": b"0.401,-1e39,4.0,",
    "digits of another script": "0.401,\uff12\uff15\uff10,4.0,".encode(),
    "an underscore": b"0.401,2_50.0,4.0,",
    "not a number": b"0.401,nan,4.0,",
    "infinity": b"0.401,250.0,inf,",
    "another base": b"0.401,0xfa,4.0,",
    "a quote that stays open": b'0.401,"250,4.0,',
    "a zero byte": b"0.401,25\x000,4.0,",
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_row_of_a_file_that_is_no_sample_is_counted_and_what_is_stored_can_be_read(
    row: bytes, tmp_path: Path
) -> None:
    """By hand: what Python takes for a number, and a spreadsheet or a meter does not write."""
    rows = [b"%.4f,250.0,4.0," % (0.4 + i / 5000) for i in range(1000)]
    rows[5] = row
    (tmp_path / "m.csv").write_bytes(b"\n".join([b"Time(ms),Main(mA),Main Voltage(V),", *rows, b""]))
    record = import_recording(tmp_path / "m.csv", tmp_path / "r", form="auto")
    assert [f.count for f in record.findings if f.code == "bad_rows"] == [1]
    found = np.concatenate([block.current_a for block in open_recording(tmp_path / "r").blocks()])
    assert found.tolist() == [0.25] * 999
