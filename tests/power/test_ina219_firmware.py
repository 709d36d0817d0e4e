"""The sketch's protocol core, compiled for this machine; the whole sketch runs in `test_ina219_simavr`."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from power.wire.ina219 import frames as ina219_frames
from power.wire.ina219.frames import Counters, Flags, Header, PongLine, crc16, parse_line
from power.wire.ina219.registers import Config, adc_setting
from tests.conftest import REPOSITORY, missing
from tests.power.ina219_runs import codes, columns, decode, header

SKETCH = REPOSITORY / "device_agents" / "firmware" / "ina219"
STRICT = ["-Wall", "-Wextra", "-Werror", "-Wconversion", "-pedantic"]
U32 = st.integers(0, 2**32 - 1)


class CHeader(ctypes.Structure):
    _fields_ = [
        ("fw", ctypes.c_char_p),
        ("uid", ctypes.c_char_p),
        ("grade", ctypes.c_char),
        ("addr", ctypes.c_uint8),
        ("rshunt_uohm", ctypes.c_uint32),
        ("rshunt_tol_ppm", ctypes.c_uint32),
        ("config", ctypes.c_uint16),
        ("cal", ctypes.c_uint16),
        ("period_us", ctypes.c_uint32),
        ("run", ctypes.c_uint32),
        ("t_us", ctypes.c_uint32),
    ]


class CSample(ctypes.Structure):
    _fields_ = [
        ("seq", ctypes.c_uint32),
        ("t_us", ctypes.c_uint32),
        ("shunt_raw", ctypes.c_int16),
        ("bus_raw", ctypes.c_uint16),
        ("flags", ctypes.c_uint8),
    ]


class CCounters(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("overruns", "i2c_errors", "resets", "late")]


class CReader(ctypes.Structure):
    _fields_ = [("line", ctypes.c_char * 16), ("length", ctypes.c_uint8)]


class CPace(ctypes.Structure):
    _fields_ = [("ended_us", ctypes.c_uint32), ("busy_us", ctypes.c_uint32)]


class CCommand(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("nonce", ctypes.c_uint32)]


def compile_with(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        missing(f"{command[0]} is not installed (Debian package {command[0]})")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=["c99", "c++11"])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The protocol core as a library, by a C and by a C++ compiler, without a single warning."""
    target = tmp_path_factory.mktemp("core") / "core.so"
    compiler = ["gcc", "-std=c99"] if request.param == "c99" else ["g++", "-std=c++11", "-x", "c++"]
    compile_with(
        [*compiler, *STRICT, "-O1", "-shared", "-fPIC", str(SKETCH / "protocol.c"), "-o", str(target)]
    )
    library = ctypes.CDLL(str(target))
    for name in ("header", "sample", "pong", "counters"):
        getattr(library, f"ina_format_{name}").restype = ctypes.c_size_t
    library.ina_crc16.restype = library.ina_config_word.restype = ctypes.c_uint16
    library.ina_period_us.restype = library.ina_count.restype = ctypes.c_uint32
    library.ina_period_us.argtypes = [ctypes.c_uint16]
    library.ina_count.argtypes = [ctypes.POINTER(CPace), ctypes.c_uint32, ctypes.c_uint32]
    library.ina_crc16.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.ina_read.restype = CCommand
    library.ina_read.argtypes = [ctypes.POINTER(CReader), ctypes.c_char]
    return library


def written(function: Callable[..., int], *arguments: object, size: int = 512) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    length = function(buffer, ctypes.c_size_t(size), *arguments)
    return buffer.raw[:length]


def c_header(facts: Header) -> CHeader:
    return CHeader(
        facts.fw.encode(),
        facts.uid.encode(),
        facts.grade.encode(),
        facts.addr,
        facts.rshunt_uohm,
        facts.rshunt_tol_ppm,
        facts.config,
        facts.cal,
        facts.period_us,
        facts.run,
        facts.t_us,
    )


@given(st.binary(max_size=100))
@settings(max_examples=100, deadline=None)
def test_checksums_agree(core: ctypes.CDLL, data: bytes) -> None:
    assert core.ina_crc16(data, len(data)) == crc16(data)


def test_the_check_value(core: ctypes.CDLL) -> None:
    assert core.ina_crc16(b"123456789", 9) == 0x29B1


def test_the_header_is_understood(core: ctypes.CDLL) -> None:
    facts = header(uid="board-7", grade="B", run=4_000_000_000, t_us=2**32 - 1, rshunt_uohm=99_800)
    line = written(core.ina_format_header, ctypes.byref(c_header(facts)))
    assert line.endswith(b"\n")
    assert parse_line(line[:-1]) == facts


def test_the_longest_header_fits_the_sketch_and_the_protocol(core: ctypes.CDLL) -> None:
    top = 2**32 - 1
    longest = CHeader(b"f" * 32, b"u" * 32, b"B", 0x4F, top, top, 0xFFFF, 0xFFFF, top, top, top)
    line = written(core.ina_format_header, ctypes.byref(longest), size=420)  # INA_HEADER_MAX
    assert 0 < len(line) <= ina219_frames.MAX_LINE


def test_a_name_cannot_break_the_header(core: ctypes.CDLL) -> None:
    facts = c_header(header())
    facts.uid = b'a"b\\c\nd\x80'
    frame = parse_line(written(core.ina_format_header, ctypes.byref(facts))[:-1])
    assert isinstance(frame, Header)
    assert frame.uid == "abcd"


@given(U32, U32, st.integers(-(2**15), 2**15 - 1), st.integers(0, 2**16 - 1), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_data_lines_are_the_bytes_we_expect(
    core: ctypes.CDLL, seq: int, t_us: int, shunt: int, bus: int, flags: int
) -> None:
    line = written(core.ina_format_sample, ctypes.byref(CSample(seq, t_us, shunt, bus, flags)), size=51)
    assert line == ina219_frames.data_line(seq, t_us, shunt, bus, flags)


@given(U32, U32, U32, U32)
@settings(max_examples=50, deadline=None)
def test_other_lines_are_the_bytes_we_expect(core: ctypes.CDLL, a: int, b: int, c: int, d: int) -> None:
    pong = written(core.ina_format_pong, *(ctypes.c_uint32(value) for value in (a, b, c)), size=51)
    assert pong == ina219_frames.pong_line(PongLine(a, b, c))
    counters = written(core.ina_format_counters, ctypes.byref(CCounters(a, b, c, d)), size=51)
    assert counters == ina219_frames.counters_line(Counters(a, b, c, d))


def test_what_does_not_fit_is_not_written(core: ctypes.CDLL) -> None:
    sample = ctypes.byref(CSample(1, 2, 3, 4, 5))
    whole = written(core.ina_format_sample, sample)
    assert written(core.ina_format_sample, sample, size=len(whole)) == whole
    assert written(core.ina_format_sample, sample, size=len(whole) - 1) == b""


def test_a_run_decodes(core: ctypes.CDLL) -> None:
    config = core.ina_config_word(1, 3, 0x3, 0xA)
    period_us = core.ina_period_us(config)
    facts = header(config=config, period_us=period_us, run=1, t_us=2**32 - 5000)
    data = written(core.ina_format_header, ctypes.byref(c_header(facts)))
    for seq in range(500):
        t_us = (facts.t_us + (seq + 1) * period_us) % 2**32
        sample = CSample(seq, t_us, seq - 250, (1250 + seq % 3) << 3 | 2, int(Flags.CNVR))
        data += written(core.ina_format_sample, ctypes.byref(sample))
    blocks, decoder = decode(data)
    index, tick, current_a, voltage_v = columns(blocks)
    assert index.tolist() == list(range(500))
    assert np.all(np.diff(tick) == period_us)
    assert current_a == pytest.approx((np.arange(500) - 250) * 1e-4)
    assert voltage_v == pytest.approx(5.0 + np.arange(500) % 3 * 4e-3)
    assert codes(decoder) == {}


NOTHING, ASK_HEADER, PING, ASK_COUNTERS, RUN, STOP = range(6)


def commands(core: ctypes.CDLL, data: bytes) -> list[tuple[int, int]]:
    reader = CReader()
    found = [core.ina_read(ctypes.byref(reader), bytes([byte])) for byte in data]
    return [(command.kind, command.nonce) for command in found if command.kind != NOTHING]


def test_commands_are_understood(core: ctypes.CDLL) -> None:
    data = ina219_frames.ASK_HEADER + ina219_frames.RUN + ina219_frames.ping(4_294_967_295)
    data += ina219_frames.ASK_COUNTERS + b"!S\r\n"
    assert commands(core, data) == [
        (ASK_HEADER, 0),
        (RUN, 0),
        (PING, 4_294_967_295),
        (ASK_COUNTERS, 0),
        (STOP, 0),
    ]


@pytest.mark.parametrize(
    "noise",
    [b"?P \n", b"?P x\n", b"?P 4294967296\n", b"?P -1\n", b"!R!\n", b" !R\n", b"\n", b"?" * 5000 + b"!R\n"],
)
def test_what_is_no_command_is_ignored_and_forgotten(core: ctypes.CDLL, noise: bytes) -> None:
    assert commands(core, noise + b"!R\n") == [(RUN, 0)]


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_no_bytes_confuse_the_command_reader(core: ctypes.CDLL, data: bytes) -> None:
    assert commands(core, data + b"\n!R\n")[-1] == (RUN, 0)


def test_configurations_agree_with_the_host(core: ctypes.CDLL) -> None:
    for pga in range(4):
        for code in (0, 1, 2, 3, 9, 10, 11, 12, 13, 14, 15):
            word = core.ina_config_word(pga % 2, pga, 0x3, code)
            config = Config(32 if pga % 2 else 16, 1 << pga, adc_setting(0x3), adc_setting(code), 7)
            assert word == config.word()
            assert core.ina_period_us(word) == config.pair_us


@pytest.mark.parametrize(
    ("since_us", "busy_us", "count", "ended_us"),
    [
        (1000, 900, 1, 1000),
        (1100, 1000, 1, 1100),  # a slow chip
        (900, 800, 1, 900),
        (2100, 2000, 2, 2100),  # one went by
        (1600, 0, 1, 1000),  # read late, but it is the only one that ended
        (2600, 900, 2, 2000),
        (700, 0, 1, 700),
    ],
)
def test_conversions_are_counted(
    core: ctypes.CDLL, since_us: int, busy_us: int, count: int, ended_us: int
) -> None:
    start = 2**32 - 500  # the clock may wrap in between
    pace = CPace(start, (start + busy_us) % 2**32)
    assert core.ina_count(ctypes.byref(pace), (start + since_us) % 2**32, 1000) == count
    assert pace.ended_us == (start + ended_us) % 2**32


def test_a_microcontroller_that_is_late_now_and_then_keeps_count(core: ctypes.CDLL) -> None:
    """Polls every 90 us, one in fifty far later, on a chip that is 8 % slow."""
    rng = np.random.default_rng(3)
    true_period_us, now_us, ended, counted, stalls = 1080.0, 0.0, 0, 0, 0
    pace = CPace(0, 0)
    while counted < 20_000:
        late = rng.random() < 0.02
        stalls += late
        now_us += float(rng.uniform(500, 5000)) if late else 90.0
        if int(now_us / true_period_us) == ended:
            pace.busy_us = int(now_us)
            continue
        ended = int(now_us / true_period_us)
        counted += core.ina_count(ctypes.byref(pace), int(now_us), 1000)
    # Each time it is late, it can be wrong by one; it must not add up to more.
    assert abs(counted - ended) < stalls / 2
