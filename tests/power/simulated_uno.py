"""An Arduino Uno in simavr: builds the sketch as the Arduino IDE does, and runs its machine code.

The board, its two-wire bus and the chip on it are in ``avr_board``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPOSITORY, missing

SKETCH = REPOSITORY / "device_agents" / "firmware" / "ina219"
BOARD = Path(__file__).resolve().parent / "avr_board"
ARDUINO = Path("/usr/share/arduino/hardware/arduino/avr")
CPU_HZ = 16_000_000

# platform.txt and boards.txt of the Arduino core, for the Uno. Debian's avr-gcc lacks DECIMAL_DIG in C++11.
_COMMON = [
    *["-mmcu=atmega328p", f"-DF_CPU={CPU_HZ}L", "-DARDUINO=10819", "-DARDUINO_AVR_UNO", "-DARDUINO_ARCH_AVR"],
    *["-Os", "-g", "-ffunction-sections", "-fdata-sections", "-flto", "-DDECIMAL_DIG=__DECIMAL_DIG__"],
    *[f"-I{ARDUINO}/{folder}" for folder in ("cores/arduino", "variants/standard", "libraries/Wire/src")],
]
_C = ["avr-gcc", *_COMMON, "-std=gnu11", "-fno-fat-lto-objects"]
_CPP = ["avr-g++", *_COMMON, "-std=gnu++11", "-fpermissive", "-fno-exceptions", "-fno-threadsafe-statics"]


def require_tools() -> None:
    """Skip, or fail in CI, where a part is not installed."""
    packages = {"avr-gcc": "gcc-avr", "avr-nm": "binutils-avr", "gcc": "gcc"}
    absent = [package for program, package in packages.items() if shutil.which(program) is None]
    absent += ["arduino-core-avr"] if not (ARDUINO / "cores").is_dir() else []
    absent += ["avr-libc"] if not Path("/usr/lib/avr/include/avr/io.h").exists() else []
    absent += ["libsimavr-dev"] if not Path("/usr/include/simavr/sim_avr.h").exists() else []
    if absent:
        missing(f"simavr's tools are not installed (Debian packages {' '.join(absent)})")


def run(command: list[str], cwd: Path | None = None, timeout_s: float = 120) -> str:
    """Run to its end, without a warning from it."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Workshop:
    """Builds sketches; the Arduino core is compiled once."""

    def __init__(self, folder: Path) -> None:
        require_tools()
        self._folder = folder
        self._core = folder / "core"
        self._core.mkdir()
        sources = [*ARDUINO.glob("cores/arduino/*.c"), ARDUINO / "libraries/Wire/src/utility/twi.c"]
        cpp = [*ARDUINO.glob("cores/arduino/*.cpp"), ARDUINO / "libraries/Wire/src/Wire.cpp"]
        # The core's own warnings are not ours.
        run([*_C, "-w", "-c", *map(str, sources)], cwd=self._core)
        run([*_CPP, "-w", "-c", *map(str, cpp)], cwd=self._core)
        self.board = folder / "board"
        run(
            [
                *["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I/usr/include/simavr"],
                *[*map(str, BOARD.glob("*.c")), "-o", str(self.board), "-lsimavr", "-lelf", "-lm"],
            ]
        )

    def build(self, name: str, *settings: tuple[str, str]) -> Uno:
        """The sketch with some of its settings changed, as its user would: text and what replaces it."""
        folder = self._folder / name
        if (folder / "sketch.elf").exists():
            return Uno(self.board, folder / "sketch.elf")
        shutil.copytree(SKETCH, folder)
        text = (folder / "ina219_meter.ino").read_text()
        for before, after in settings:
            assert before in text
            text = text.replace(before, after)
        (folder / "ina219_meter.cpp").write_text(text)
        strict = ["-Wall", "-Wextra", "-Werror", f"-I{folder}"]
        run([*_C, *strict, "-c", "protocol.c"], cwd=folder)
        run([*_CPP, *strict, "-c", "ina219_meter.cpp"], cwd=folder)
        objects = [*map(str, folder.glob("*.o")), *map(str, self._core.glob("*.o"))]
        link = ["avr-gcc", "-w", "-Os", "-g", "-flto", "-fuse-linker-plugin", "-Wl,--gc-sections"]
        run([*link, "-mmcu=atmega328p", *objects, "-o", str(folder / "sketch.elf"), "-lm"])
        return Uno(self.board, folder / "sketch.elf")


@dataclass(frozen=True)
class Transcript:
    """What a sketch sent, and what the simulator saw.

    Attributes:
        lines: Microsecond of the last byte since power came on, and the line.
        seen: Cycles, lowest stack address, baud rate and so on.
    """

    lines: tuple[tuple[float, bytes], ...]
    seen: dict[str, float]

    def starting_with(self, letter: bytes) -> list[bytes]:
        """Lines of one kind."""
        return [line for _, line in self.lines if line.startswith(letter)]

    def after_run(self) -> bytes:
        """The bytes from the header of the first run on."""
        began = next(i for i, (_, line) in enumerate(self.lines) if b'"run":1,' in line)
        return b"".join(line + b"\n" for _, line in self.lines[began:])


@dataclass(frozen=True)
class Uno:
    """A board with a sketch on it."""

    board: Path
    elf: Path

    def clock_at(self, start_us: int) -> dict[str, float]:
        """Options that make ``micros()`` begin there: it counts overflows of a timer, 1024 us each."""
        symbols = run(["avr-nm", str(self.elf)])
        address = re.search(r"^008(\w+) \w timer0_overflow_count$", symbols, re.MULTILINE)
        assert address is not None
        return {"clock_at": int(address[1], 16), "clock_value": start_us // 1024}

    def sizes(self) -> dict[str, int]:
        """Bytes of flash, and of memory that is always taken."""
        rows = re.findall(r"^\.(\w+)\s+(\d+)\s+\d+", run(["avr-size", "-A", str(self.elf)]), re.MULTILINE)
        size = {name: int(count) for name, count in rows}
        return {"flash": size["text"] + size["data"], "memory": size["data"] + size["bss"]}

    def play(self, folder: Path, script: dict[float, str], run_ms: float, **options: float) -> Transcript:
        """Send commands at milliseconds after power came on, in simulated time."""
        (folder / "script").write_text("".join(f"{at} {text}\n" for at, text in script.items()))
        given = [f"{name}={value}" for name, value in options.items()]
        command = [str(self.board), str(self.elf), f"script={folder / 'script'}", f"run_ms={run_ms}", *given]
        out = run(command, timeout_s=120 + run_ms / 100)  # a busy machine simulates at a tenth of real time
        *lines, seen = out.splitlines()
        pairs = [line.partition(" ") for line in lines]
        return Transcript(
            tuple((int(cycle) / (CPU_HZ / 1e6), text.encode()) for cycle, _, text in pairs), json.loads(seen)
        )

    @contextmanager
    def plugged_in(self, **options: float) -> Iterator[str]:
        """In real time, behind a pseudo-terminal whose path is given."""
        command = [str(self.board), str(self.elf), *(f"{name}={value}" for name, value in options.items())]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip()
            finally:
                process.communicate(timeout=10)
