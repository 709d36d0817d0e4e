"""Runs inside the guest: does what the tests on the host ask for, over one TCP connection.

Standard library only, apart from the command line of joulefleet, which is imported once: a request forks and
so spares the guest, whose processor is emulated, some seconds of imports each time.

A request is a line of JSON: ``{"id": 1, "argv": [...], "uid": 0, "groups": [], "timeout_s": 60}`` runs a
program, or joulefleet's command line if the first word is ``joulefleet``, or a Python file in a fork of this
process if that ends in ``.py``; ``{"signal": 2, "of": 1}`` sends a signal to it. The answer comes when it
has ended: ``{"id": 1, "code": 0, "out": ..., "err": ..., "seconds": ...}``.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

MAX_OUTPUT = 32 << 20
HOST = "10.0.2.2"


class Job:
    """One request under way."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.id = int(request["id"])
        self.out, self.err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 - kept open
        self.began = time.monotonic()
        self.deadline = self.began + float(request["timeout_s"])
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                code = _child(request, self.out, self.err)
            finally:
                os._exit(code)

    def poll(self) -> dict[str, Any] | None:
        """The answer, once there is one."""
        if time.monotonic() > self.deadline:
            os.killpg(self.pid, signal.SIGKILL)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        texts = []
        for stream in (self.out, self.err):
            stream.seek(0)
            texts.append(stream.read(MAX_OUTPUT).decode("utf-8", "replace"))
            stream.close()
        seconds = time.monotonic() - self.began
        code = os.waitstatus_to_exitcode(status)
        return {"id": self.id, "code": code, "out": texts[0], "err": texts[1], "seconds": seconds}


def _child(request: dict[str, Any], out: IO[bytes], err: IO[bytes]) -> int:
    argv, uid = request["argv"], int(request["uid"])
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    if uid:
        os.setgroups(request["groups"])
        os.setgid(uid)
        os.setuid(uid)
    try:
        if argv[0] == "joulefleet" or argv[0].endswith(".py"):
            return _python(argv)
        os.execvp(argv[0], argv)
    except BaseException:
        import traceback

        traceback.print_exc()
    return 70


def _python(argv: list[str]) -> int:
    sys.argv = argv
    try:
        if argv[0] == "joulefleet":
            from harness.cli import main

            main()
        else:
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _warm_up() -> None:
    """Import what most requests need."""
    import power.meters.ina219
    import power.meters.monsoon_hvpm
    import power.meters.monsoon_lvpm
    import power.meters.scan
    import power.recording.recorder  # noqa: F401


def serve(end: socket.socket) -> None:
    """Answer requests until the host goes away."""
    jobs: dict[int, Job] = {}
    received = b""
    while True:
        ready, _, _ = select.select([end], [], [], 0.05 if jobs else None)
        if ready:
            data = end.recv(65536)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if "signal" in request:
                    job = jobs.get(request["of"])
                    if job is not None:
                        os.killpg(job.pid, request["signal"])
                else:
                    job = Job(request)
                    jobs[job.id] = job
        for job in list(jobs.values()):
            answer = job.poll()
            if answer is not None:
                del jobs[job.id]
                end.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Connect to the host that started this guest: port and token are on the kernel's command line."""
    line = Path("/proc/cmdline").read_text(encoding="ascii")
    words = dict(word.partition("=")[::2] for word in line.split())
    began = time.monotonic()
    _warm_up()  # before it connects: whoever does must say at once who it is
    hello = {
        "token": words["joulefleet.token"],
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "imports_s": round(time.monotonic() - began, 1),
    }
    with socket.create_connection((HOST, int(words["joulefleet.port"])), timeout=60) as end:
        end.settimeout(None)
        end.sendall(json.dumps(hello).encode() + b"\n")
        serve(end)


main()
