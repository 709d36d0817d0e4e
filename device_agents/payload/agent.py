"""The agent: answers one host over standard input and output, one job at a time.

Run as ``python -m device_agents.payload.agent`` or from the bundle. Standard library and the chosen backend
only; Python 3.9 syntax, because boards run what their distribution ships.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import queue
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from device_agents.payload.context import AgentContext
from device_agents.payload.faults import LINK_LOST, Interrupted, JobFault, LinkLost, storage_fault
from device_agents.payload.interrupter import Interrupter
from device_agents.payload.job import parse_job
from device_agents.payload.job_run import JobRun
from device_agents.payload.link.output import AgentOutput
from device_agents.payload.link.streams import LATE, LOST, Reader, Sender
from device_agents.payload.link.wire import MAX_BLOB_BYTES, MAX_COLLECT_BYTES, PROTOCOL_VERSION, encode
from device_agents.payload.readiness_report import MODULES, module_version
from device_agents.payload.state_folder import FILES, StateFolder, default_state
from device_agents.payload.wake_lock import wake_lock

IDLE_LIMIT_S = 26 * 3600.0
"""An agent whose host says nothing for so long has been forgotten: the link is half open.

Longer than a host ever has reason to be silent: it may wait a day for the other devices of a round, after
idle time of an hour. A link that is gone ends the agent sooner, where its SSH server looks (`TCPKeepAlive`).
"""

MAX_ATTACH_S = 7 * 86_400.0


class Agent:
    """Dispatches commands; jobs run in the main thread."""

    def __init__(self, root: Path, state: StateFolder, output: AgentOutput) -> None:
        self._job: JobRun | None = None
        self._cancelled_id = ""
        sender = Sender(output.protocol_fd)
        reader = Reader(0, sender, self._cancel, self._link_lost)
        self._context = AgentContext(root, state, output, sender, reader, Interrupter())
        self._commands = {
            "hello": self._hello,
            "job": self._run_job,
            "collect": self._collect,
            "attach": self._attach,
            "fetch": self._fetch,
            "cancel_orphan": self._cancel_orphan,
            "require_free": self._require_free,
            "forget": self._forget,
            "clear_cache": self._clear_cache,
        }

    def serve(self) -> None:
        """Answer until the host hangs up."""
        self._context.interrupter.install()
        self._context.reader.start()
        while not self._context.interrupter.terminating:
            try:
                command = self._context.reader.take(IDLE_LIMIT_S)
            except queue.Empty:
                return
            if command is LOST:
                return
            try:
                self._answer(command)
            except LinkLost:
                return

    def _answer(self, command: dict[str, Any]) -> None:
        kind = command["type"]
        if kind in LATE:
            return
        try:
            if kind not in self._commands:
                raise JobFault("protocol", str(command.get("message") or f"unknown command {kind!r}"))
            self._commands[kind](command)
        except OSError as error:
            self._refuse(command, storage_fault(self._context.state.root, error))
        except JobFault as fault:
            self._refuse(command, fault)

    def _hello(self, _: dict[str, Any]) -> None:
        self._context.sender.send(
            {
                "type": "hello",
                "version": PROTOCOL_VERSION,
                "pid": os.getpid(),
                "python": platform.python_version(),
                "modules": {name: found for name in MODULES if (found := module_version(name))},
                "cpus": usable_cpus(),
                **self._context.now(),
            }
        )

    def _run_job(self, command: dict[str, Any]) -> None:
        spec = parse_job(command)
        with self._context.state.working_on(command.get("job_id")) as folder:
            try:
                self._context.output.redirect(folder.log)
                self._job = JobRun(self._context, spec, command["job_id"], folder)
                if self._cancelled_id == self._job.job_id:  # it came before the job was there to hear of it
                    self._job.cancel()
                self._job.run()
            finally:
                self._job = None
                self._context.output.relay()
                self._context.output.redirect(self._context.state.log)

    def _cancel(self, job_id: str) -> None:
        """From the reader thread: end the job, running or next in the queue. There is no answer."""
        self._cancelled_id = job_id
        job = self._job
        if job is not None and job.job_id == job_id:
            job.cancel()

    def _link_lost(self) -> None:
        """From the reader thread."""
        job = self._job
        if job is not None:
            job.link_lost()
        else:
            self._context.interrupter.request(LINK_LOST)  # it may be waiting for a job of another process

    def _cancel_orphan(self, command: dict[str, Any]) -> None:
        """A job of another process, which outlived its link."""
        worker = self._context.state.job(command.get("job_id")).worker()
        if worker is not None:
            os.kill(worker, signal.SIGTERM)
        self._ok(command)

    def _collect(self, command: dict[str, Any]) -> None:
        folder = self._context.state.job(command.get("job_id"))
        name, offset, limit = command.get("file"), command.get("offset"), command.get("max_bytes")
        if name not in FILES or type(offset) is not int or type(limit) is not int or offset < 0:
            raise JobFault("protocol", "collect needs a file, an offset and a limit")
        path = folder.path / FILES[name]
        data = _read(path, offset, min(limit, MAX_COLLECT_BYTES))
        header = {"type": "chunk", "job_id": _name(command), "file": name, "offset": offset}
        self._context.sender.send({**header, "size": len(data)}, data)

    def _attach(self, command: dict[str, Any]) -> None:
        """Report on a job, once no process works on it any more or the time is up."""
        folder = self._context.state.job(command.get("job_id"))
        timeout_s: Any = command.get("timeout_s")
        if type(timeout_s) not in (int, float) or not 0 <= timeout_s <= MAX_ATTACH_S:
            raise JobFault("protocol", f"attach needs a timeout up to {MAX_ATTACH_S:g} s")
        self._context.interrupter.begin(max(0.001, timeout_s))  # a timer of zero would never go off
        with contextlib.suppress(Interrupted):
            self._context.interrupter.run(folder.wait)
        self._context.interrupter.end()
        status = folder.status(self._context.now())
        self._context.sender.send({"type": "status", "job_id": _name(command), **status})

    def _fetch(self, command: dict[str, Any]) -> None:
        folder = self._context.state.job(command.get("job_id"))
        result = folder.first_and_last()[1].get("result")
        if not result:
            raise JobFault("unknown_job", f"job {_name(command)!r} has left no result")
        data = _read(folder.result, 0, MAX_BLOB_BYTES)
        self._context.sender.send(
            {"type": "blob", "job_id": _name(command), "name": "result", **result}, data
        )

    def _require_free(self, command: dict[str, Any]) -> None:
        self._context.state.require_free()
        self._ok(command)

    def _forget(self, command: dict[str, Any]) -> None:
        self._context.state.forget(command.get("job_id"))
        self._cancelled_id = ""  # its name may be used again
        self._ok(command)

    def _clear_cache(self, command: dict[str, Any]) -> None:
        self._context.state.clear_cache()
        self._ok(command)

    def _refuse(self, command: dict[str, Any], fault: JobFault) -> None:
        self._context.sender.send(
            {"type": "error", "code": fault.code, "message": str(fault)[:2000], "job_id": _name(command)}
        )

    def _ok(self, command: dict[str, Any]) -> None:
        self._context.sender.send({"type": "ok", "job_id": _name(command)})


def usable_cpus() -> int | None:
    """Processors that this process may use; a background load is told relative to these."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return os.cpu_count() if affinity is None else len(affinity(0))


def _name(command: dict[str, Any]) -> str:
    return str(command.get("job_id", ""))[:64]


def _read(path: Path, offset: int, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return b""


def main() -> None:
    """Reserve standard output, hold the wake lock, serve."""
    parser = argparse.ArgumentParser(prog="agent", description=__doc__)
    parser.add_argument("--state", type=Path, default=default_state(), help="the agent's folder")
    parser.add_argument("--root", type=Path, default=Path("/"), help="parent of /proc and /sys")
    options = parser.parse_args()
    try:
        state = StateFolder(options.state.absolute())
        output = AgentOutput(state.log)
    except OSError as error:
        message = f"{options.state}: {error.strerror or error}"
        os.write(1, encode({"type": "error", "code": "storage", "message": message, "job_id": "", "seq": 0}))
        sys.exit(1)
    try:
        with wake_lock():
            Agent(options.root, state, output).serve()
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        output.relay()


if __name__ == "__main__":
    main()
