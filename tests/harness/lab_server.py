"""A lab that answers, for tests that ask it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from harness.lab.folders import Folders
from harness.lab.server import Lab, make_app


@dataclass
class Served:
    """A lab that answers."""

    lab: Lab
    port: int
    folder: Path

    def ask(
        self, path: str, *, token: str | None = None, body: bytes | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        word = self.lab.token if token is None else token
        full = path if path.startswith("/page/") else f"/{word}{path}"
        connection.putrequest("GET" if body is None else "POST", full, skip_host=True)
        connection.putheader("Host", headers.pop("host", f"127.0.0.1:{self.port}"))
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        found = dict(answer.getheaders())
        is_json = found.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text.decode(), found

    def data(self, path: str) -> Any:
        status, data, _ = self.ask(path)
        assert status == 200, data
        return data

    def note(self, run: str, text: str, job: str = "", **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Write one as the page does."""
        sent = {"content_type": "application/json", "origin": f"http://127.0.0.1:{self.port}", **headers}
        body = json.dumps({"text": text, "job": job}).encode()
        return self.ask(f"{run}/notes", body=body, **{k: v for k, v in sent.items() if v})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.lab.token}/"


@contextlib.contextmanager
def serving(folder: Path, *roots: str) -> Iterator[Served]:
    """A lab over some folders of runs."""
    lab = Lab(Folders(tuple(folder / root for root in roots)))
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(make_app(lab, port), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield Served(lab, port, folder)
        finally:
            server.should_exit = True
            thread.join()
