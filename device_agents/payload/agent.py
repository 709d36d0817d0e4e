"""The agent: one probe epoch, a report, a decision, then the remaining epochs or an early exit.

Standard output carries the protocol and nothing else: it is taken away from ``print`` at the start.
Python 3.9 syntax, because boards run what their distribution ships.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

PROTOCOL_VERSION = 1


class Agent:
    """Reads commands from ``stdin``, writes messages to ``out``."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._seq = 0

    def send(self, message: dict[str, Any]) -> None:
        """Send one message now."""
        self._out.write(json.dumps(message, separators=(",", ":")) + "\n")
        self._out.flush()

    def mark(self, kind: str, edge: str, epoch: int = 0) -> int:
        """Stamp a marker on the device's monotonic clock; stamp first, send after."""
        t_dev_ns = time.monotonic_ns()
        marker = {"kind": kind, "edge": edge, "epoch": epoch, "t_dev_ns": t_dev_ns, "seq": self._seq}
        self._seq += 1
        self.send({"type": "marker", "marker": marker})
        return t_dev_ns

    def serve(self) -> None:
        """Handle commands until the host hangs up."""
        for line in sys.stdin:
            command = json.loads(line)
            kind = command.get("type")
            if kind == "hello":
                self.send(_hello())
            elif kind == "ping":
                self.send({"type": "pong", "nonce": command["nonce"], "t_dev_ns": time.monotonic_ns()})
            elif kind == "job":
                self.run(command)
            elif kind == "cancel":
                return

    def run(self, job: dict[str, Any]) -> None:
        """One round's local work."""
        trainer = _trainer(job)
        loss = self._epoch(trainer, 1)
        self.mark("wait", "start")
        go_on = self._decision()
        self.mark("wait", "end")
        epochs = 1
        while go_on and epochs < job["epochs"]:
            epochs += 1
            loss = self._epoch(trainer, epochs, report=False)
        self.send({"type": "done", "epochs": epochs, "loss": loss})

    def _epoch(self, trainer: _Trainer, epoch: int, report: bool = True) -> float:
        start_ns = self.mark("epoch", "start", epoch)
        loss = trainer.epoch()
        end_ns = self.mark("epoch", "end", epoch)
        if report:
            self.send(
                {
                    "type": "probe_done",
                    "loss": loss,
                    "duration_ns": end_ns - start_ns,
                    "samples": trainer.samples,
                }
            )
        return loss

    def _decision(self) -> bool:
        line = sys.stdin.readline()
        if not line:  # the host is gone: stop, as nobody wants the result
            return False
        return bool(json.loads(line).get("action") == "continue")


class _Trainer:
    """Softmax regression on a synthetic shard."""

    def __init__(self, samples: int, seed: int) -> None:
        import numpy as np

        from device_agents.workloads.softmax import Softmax, synthetic_shard

        self.samples = samples
        self._rng = np.random.default_rng(seed)
        self._model = Softmax()
        self._x, self._y = synthetic_shard(samples, self._model, self._rng)
        self._parameters = self._model.initial()

    def epoch(self) -> float:
        self._parameters, loss = self._model.epoch(self._parameters, self._x, self._y, self._rng)
        return loss


def _trainer(job: dict[str, Any]) -> _Trainer:
    if job["workload"] != "softmax":
        raise ValueError("unknown workload {!r}".format(job["workload"]))
    return _Trainer(job["samples"], job["seed"])


def _hello() -> dict[str, Any]:
    return {
        "type": "hello",
        "version": PROTOCOL_VERSION,
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "boot_id": _boot_id() or "",
    }


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux, or not readable: the host then cannot tell a reboot
        return None


def main() -> None:
    """Reserve standard output, then serve."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not corrupt the protocol
    agent = Agent(out)
    try:
        agent.serve()
    except Exception as error:
        agent.send({"type": "error", "message": f"{type(error).__name__}: {error}"[:4000]})
        raise


if __name__ == "__main__":
    main()
