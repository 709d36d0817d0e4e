"""Running an emulated instrument: in a thread, or in a process of its own as real hardware would be."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import import_module

from joulefleet.errors import ConfigError, MeterError
from power.emulated.options import EmulatorOptions

STEP_S = 0.005

EMULATORS = {
    "monsoon-lvpm": "power.emulated.lvpm.instrument:EmulatedLvpm",
    "monsoon-hvpm": "power.emulated.hvpm.instrument:EmulatedHvpm",
    "ina219": "power.emulated.ina219.instrument:EmulatedIna219",
}


class Emulator(ABC):
    """An instrument made of bytes. `step` is called every few milliseconds with the host's clock."""

    @property
    @abstractmethod
    def address(self) -> str:
        """What goes into `power.meter.MeterConfig.port` to reach it."""

    @abstractmethod
    def step(self, now_ns: int) -> None:
        """Answer commands and send the samples that are due by ``now_ns``."""

    @abstractmethod
    def close(self) -> None:
        """Pull the cable."""

    @property
    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Counters: at least ``samples`` and ``discarded_bytes``."""


def build_emulator(kind: str, options: EmulatorOptions) -> Emulator:
    """Make an emulated instrument by kind."""
    if kind not in EMULATORS:
        raise ConfigError(f"no emulator for {kind!r}", hint=f"known: {', '.join(EMULATORS)}")
    module, _, name = EMULATORS[kind].partition(":")
    make: Callable[[EmulatorOptions], Emulator] = getattr(import_module(module), name)
    return make(options)


def serve(emulator: Emulator, stop: threading.Event) -> None:
    """Step until ``stop`` is set."""
    while not stop.is_set():
        emulator.step(time.monotonic_ns())
        stop.wait(STEP_S)


@contextlib.contextmanager
def in_thread(kind: str, options: EmulatorOptions) -> Iterator[Emulator]:
    """An emulated instrument that runs in a thread of this process."""
    emulator = build_emulator(kind, options)
    stop = threading.Event()
    thread = threading.Thread(target=serve, args=(emulator, stop), name=f"emulated-{kind}", daemon=True)
    thread.start()
    try:
        yield emulator
    finally:
        stop.set()
        thread.join()
        emulator.close()


class EmulatorProcess:
    """An emulated instrument in a process of its own; ends with this object or with this process."""

    def __init__(self, kind: str, options: EmulatorOptions) -> None:
        command = [sys.executable, "-m", "power.emulated", kind, options.model_dump_json()]
        self._process = subprocess.Popen(  # noqa: S603 - our own module, arguments as a list
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None  # noqa: S101 - PIPE above
        line = self._process.stdout.readline()
        if not line:
            raise MeterError(f"the emulated {kind} did not start", hint="its own message is above")
        self.address: str = json.loads(line)["address"]
        self.pid = self._process.pid

    def close(self) -> dict[str, int]:
        """Stop it and return its counters."""
        out, _ = self._process.communicate(timeout=10)  # closing stdin is the signal to end
        statistics: dict[str, int] = json.loads(out.splitlines()[-1])
        return statistics

    def kill(self) -> None:
        """Pull the cable."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> EmulatorProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def main(kind: str, options: EmulatorOptions) -> None:
    """Serve until standard input ends; the address goes out first, the counters last, one JSON line each."""
    emulator = build_emulator(kind, options)
    stop = threading.Event()
    print(json.dumps({"address": emulator.address}), flush=True)  # noqa: T201 - the protocol of this process

    def wait_for_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    try:
        serve(emulator, stop)
    except KeyboardInterrupt:
        pass
    finally:
        print(json.dumps(emulator.statistics), flush=True)  # noqa: T201
        emulator.close()
