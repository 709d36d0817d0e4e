"""A Linux guest in QEMU: starts, runs commands, ends with this process.

``JOULEFLEET_GUEST_ACCEL`` may say ``kvm`` where that works; ``tcg``, which works everywhere, is some twenty
times slower. The guest has one network link, whose far end is this machine's loopback, and no route further.
It sees this tree read-only, and its own disk changes are thrown away.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import signal
import socket
import subprocess
import tarfile
import threading
import time
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernel.image import REPOSITORY, GuestError, Image, dies_with_parent

ACCELERATOR = "JOULEFLEET_GUEST_ACCEL"

SILENT_S = 300.0
"""A guest that boots is given up when its console stands still for so long: a busy machine boots slowly."""

BOOT_S = 1800.0
"""And after so long in any case: a kernel can complain for ever."""

HELLO_S = 30.0
"""How long whoever connects may take to say the token."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended in the guest."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> str:
        """All it printed, on one line: messages are wrapped, and with ``--json`` errors are data."""
        return " ".join((self.out + self.err).split())

    @property
    def json(self) -> Any:
        """What it printed, as data."""
        return json.loads(self.out)


class Command:
    """A command under way in the guest."""

    def __init__(self, guest: Guest, number: int, argv: list[str], timeout_s: float) -> None:
        self._guest, self._number = guest, number
        self._argv, self._timeout_s = argv, timeout_s

    def wait(self) -> Done:
        """Until it has ended."""
        # The guest ends it in time; a guest that does not is stuck itself.
        return self._guest.answer(self._number, self._timeout_s + 30, " ".join(self._argv))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._guest.send({"signal": int(signal.SIGINT), "of": self._number})


class Guest:
    """A running guest; a context manager.

    Args:
        image: What it boots.
        folder: Where its console's log goes.
        silent_s: How long its console may stand still while it boots.

    Raises:
        GuestError: It does not come up; has the end of its console.
    """

    def __init__(self, image: Image, folder: Path, *, silent_s: float = SILENT_S) -> None:
        self.console = folder / "console.log"
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._ended = ""
        self._number = 0
        self._end: socket.socket | None = None
        began = time.monotonic()
        self._process = self._start(image)
        try:
            self.facts = self._accept(silent_s)
        except BaseException:
            self.close()
            raise
        self.facts["boot_s"] = round(time.monotonic() - began, 1)
        threading.Thread(target=self._listen, name="guest", daemon=True).start()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(
        self,
        *argv: str,
        uid: int = 0,
        groups: tuple[int, ...] = (),
        timeout_s: float = 120.0,
        check: bool = True,
    ) -> Done:
        """Run a command to its end.

        Raises:
            GuestError: It fails, unless ``check`` is false.
        """
        done = self.begin(*argv, uid=uid, groups=groups, timeout_s=timeout_s).wait()
        if check and done.code:
            raise GuestError(f"in the guest, {' '.join(argv)} ended with {done.code}: {done.said}")
        return done

    def begin(
        self, *argv: str, uid: int = 0, groups: tuple[int, ...] = (), timeout_s: float = 120.0
    ) -> Command:
        """Start a command and let it run."""
        self._number += 1
        self.send({"id": self._number, "argv": argv, "uid": uid, "groups": groups, "timeout_s": timeout_s})
        return Command(self, self._number, list(argv), timeout_s)

    def fetch(self, path: str, into: Path) -> Path:
        """Copy a folder of the guest to this machine."""
        parent, name = os.path.split(path)
        done = self.run("sh", "-c", 'tar -C "$0" -cf - "$1" | base64 -w 0', parent, name)
        with tarfile.open(fileobj=io.BytesIO(b64decode(done.out))) as tar:
            tar.extractall(into, filter="data")
        return into / name

    def send(self, message: dict[str, Any]) -> None:
        """Ask the agent for something."""
        if self._end is None:
            raise GuestError("the guest is not up")
        try:
            self._end.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise GuestError(f"the guest is gone: {self._console_end()}") from error

    def answer(self, number: int, timeout_s: float, what: str) -> Done:
        """Wait for an answer."""
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._answers or self._ended, timeout_s)
            answer = self._answers.pop(number, None)
        if answer is None:
            why = self._ended or f"does not answer within {timeout_s:g} s"
            raise GuestError(f"the guest {why}, at {what}: {self._console_end()}")
        return Done(answer["code"], answer["out"], answer["err"], answer["seconds"])

    def close(self) -> None:
        """Switch it off. May be called twice."""
        self._listener.close()
        if self._end is not None:
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)  # the agent ends and the guest switches itself off
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._end.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Of QEMU."""
        return self._process.pid

    def _start(self, image: Image) -> subprocess.Popen[bytes]:
        port = self._listener.getsockname()[1]
        words = f"joulefleet.port={port} joulefleet.token={self._token}"
        disks = [
            f"file={image.debian / 'disk'},format=raw,if=virtio,snapshot=on",
            f"file={image.python / 'disk'},format=raw,if=virtio,readonly=on",
        ]
        share = (
            f"local,path={REPOSITORY},mount_tag=joulefleet,security_model=none,readonly=on,multidevs=remap"
        )
        command = [
            *dies_with_parent("KILL"),
            # Nehalem: numpy needs SSE 4.2, which the default processor lacks.
            *("qemu-system-x86_64", "-machine", "q35", "-accel", os.environ.get(ACCELERATOR, "tcg")),
            *("-cpu", "Nehalem", "-smp", "1", "-m", "1536", "-display", "none", "-no-reboot"),
            *("-serial", f"file:{self.console}", "-monitor", "none", "-nodefaults"),
            *("-kernel", str(image.debian / "vmlinuz"), "-initrd", str(image.debian / "initramfs")),
            *("-append", f"console=ttyS0 panic=-1 mitigations=off random.trust_cpu=on {words}"),
            *(word for disk in disks for word in ("-drive", disk)),
            *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="),
            *("-virtfs", share, "-device", "virtio-rng-pci"),
        ]
        with self.console.with_suffix(".qemu").open("wb") as errors:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )

    def _accept(self, silent_s: float) -> dict[str, Any]:
        """The agent's first words. Anybody on this machine can connect; only the agent knows the token."""
        self._listener.settimeout(0.5)
        began_s = moved_s = time.monotonic()
        size = 0
        while self._process.poll() is None:
            now_s = time.monotonic()
            if (grown := self.console.stat().st_size if self.console.exists() else 0) > size:
                size, moved_s = grown, now_s
            if now_s - moved_s > silent_s or now_s - began_s > BOOT_S:
                break
            try:
                end, _ = self._listener.accept()
            except TimeoutError:
                continue
            end.settimeout(HELLO_S)
            with contextlib.suppress(OSError, ValueError):
                hello = json.loads(end.makefile("rb").readline(4096))
                if isinstance(hello, dict) and hello.pop("token", "") == self._token:
                    end.settimeout(None)
                    self._end = end
                    return hello
            end.close()
        after = f"did not come up in {time.monotonic() - began_s:.0f} s"
        state = after if self._process.poll() is None else "ended while it booted"
        raise GuestError(f"the guest {state}; its console ({self.console}) ends with: {self._console_end()}")

    def _listen(self) -> None:
        assert self._end is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._end.makefile("rb"):
                answer = json.loads(line)
                with self._arrived:
                    self._answers[answer["id"]] = answer
                    self._arrived.notify_all()
        with self._arrived:
            self._ended = "has ended"
            self._arrived.notify_all()

    def _console_end(self) -> str:
        lines: list[str] = []
        for file in (self.console.with_suffix(".qemu"), self.console):
            with contextlib.suppress(OSError):
                text = file.read_text(errors="replace").splitlines()
                lines += [line for line in text[:-6] if "panic" in line] + text[-6:]
        return " | ".join(line.strip() for line in lines if line.strip()) or "(nothing)"
