"""The lab's web server: this machine only, a random word in every address, nothing written but notes."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from harness.lab.bench import Live
from harness.lab.emulations import Emulations
from harness.lab.folders import Folders, is_finished
from harness.lab.guard import Guard
from harness.lab.recorded import OpenRecordings, seconds
from joulefleet.budgets import parse_json
from joulefleet.errors import JoulefleetError, StorageError, describe
from joulefleet.printable import printable_data
from joulefleet.runstore.notes import LONGEST, add_note, read_notes
from joulefleet.runstore.run import read_run

STATIC = {
    "lab.js": (Path(__file__).parent / "static", "text/javascript"),
    "charts.js": (Path(__file__).parent / "static", "text/javascript"),
    "lab.css": (Path(__file__).parent / "static", "text/css"),
    "report.css": (Path(__file__).parents[1] / "report" / "static", "text/css"),
    "figures.js": (Path(__file__).parents[1] / "report" / "static", "text/javascript"),
    "uPlot.iife.min.js": (Path(__file__).parents[1] / "report" / "static", "text/javascript"),
    "uPlot.min.css": (Path(__file__).parents[1] / "report" / "static", "text/css"),
}
LARGEST_PAGE = 64 << 20
LARGEST_BODY = 6 * LONGEST + 1_000
"""A note of escapes alone, and what is around it."""
MOST_POINTS = 4_000
# A run's page may come from another lab. It draws, and reaches nothing: no network, none of our addresses.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:"
)


@dataclass(frozen=True, slots=True)
class Lab:
    """What one server shows.

    Attributes:
        folders: The runs.
        token: The word in its addresses.
    """

    folders: Folders
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    live: Live = field(default_factory=Live)
    recorded: OpenRecordings = field(default_factory=OpenRecordings)
    emulations: Emulations = field(default_factory=Emulations)

    def page_key(self, root: int, name: str) -> str:
        """The word in the address of one run's page, which a script in that page may come to know."""
        return hmac.new(self.token.encode(), os.fsencode(f"{root}/{name}"), hashlib.sha256).hexdigest()[:32]

    # What can be asked, each with the question's parameters.

    def runs(self, question: Request) -> dict[str, Any]:
        """Runs, those with all words that are asked for."""
        found = self.folders.runs(question.query_params.get("words", "").lower().split())
        for one in found["runs"]:
            key = self.page_key(one["root"], one["run"])
            name = quote(os.fsencode(one["run"]))
            one["page"] = f"/page/{key}/{one['root']}/{name}" if one["has_page"] else None
        return found

    def run(self, question: Request) -> dict[str, Any]:
        """One run as it stands."""
        path = self._run(question)
        record = read_run(path)
        facts = {"name": record.name, "kind": record.kind, "created_utc": record.created_utc.isoformat()}
        if record.kind in ("emulation", "experiment"):
            return {**facts, **self.emulations.run(path)}
        return {**facts, **self.live.run(path, whole=question.query_params.get("whole") == "1")}

    def trace(self, question: Request) -> dict[str, Any]:
        """Power of a finished recording between two moments."""
        points = int(min(MOST_POINTS, max(2, seconds(question.query_params.get("points"), 1_000))))
        return self.recorded.trace(self._recording(question), *_stretch(question), points)

    def energy(self, question: Request) -> dict[str, Any]:
        """Joules between two moments."""
        return self.recorded.energy(self._recording(question), *_stretch(question))

    def notes(self, question: Request) -> dict[str, Any]:
        """What people wrote about a run."""
        return {"notes": [one.model_dump(mode="json") for one in read_notes(self._run(question))]}

    def add_note(self, question: Request, body: bytes) -> dict[str, Any]:
        """Write a note beside a run: the one thing that the lab writes."""
        said = parse_json(body)
        if not isinstance(said, dict) or not all(isinstance(said.get(one), str) for one in ("text", "job")):
            raise StorageError("not a note")
        add_note(self._run(question), said["text"], said["job"])
        return self.notes(question)

    def report(self, question: Request) -> Response:
        """The stored page of a run, shut in."""
        root, name, key = (question.path_params[part] for part in ("root", "name", "key"))
        if not hmac.compare_digest(key.encode(), self.page_key(root, name).encode()):
            raise StorageError("no such page")
        file = self.folders.run(root, name) / "report.html"
        if file.stat().st_size > LARGEST_PAGE:
            raise StorageError("its page is too large")
        return HTMLResponse(file.read_bytes(), headers={"Content-Security-Policy": REPORT_POLICY})

    def _run(self, question: Request) -> Path:
        return self.folders.run(question.path_params["root"], question.path_params["name"])

    def _recording(self, question: Request) -> Path:
        inside = question.query_params.get("recording", "")
        found = self.folders.recording(question.path_params["root"], question.path_params["name"], inside)
        if not is_finished(found):
            raise StorageError("this recording is still being made")
        return found


def _stretch(question: Request) -> tuple[float, float]:
    asked = question.query_params
    return seconds(asked.get("from"), 0.0), seconds(asked.get("to"), float("inf"))


def make_app(lab: Lab, port: int) -> Starlette:
    """The application of a server that listens on ``port``."""
    run = "/api/runs/{root:int}/{name:str}"
    inside = [
        Route("/", _page),
        Route("/static/{name:str}", _static),
        Route("/api/runs", _answering(lab.runs)),
        Route(run, _answering(lab.run)),
        Route(f"{run}/trace", _answering(lab.trace)),
        Route(f"{run}/energy", _answering(lab.energy)),
        Route(f"{run}/notes", _answering(lab.notes)),
        Route(f"{run}/notes", _reading(lab.add_note), methods=["POST"]),
    ]
    report = Route("/page/{key:str}/{root:int}/{name:str}", _answering(lab.report))
    return Starlette(
        routes=[Mount(f"/{lab.token}", routes=inside), report], middleware=[Middleware(Guard, port=port)]
    )


def _answering(method: Callable[[Request], dict[str, Any] | Response]) -> Callable[[Request], Response]:
    """An endpoint; what cannot be answered is said in a sentence."""

    def endpoint(question: Request) -> Response:
        try:
            found = method(question)
        except (JoulefleetError, OSError, ValueError) as error:
            return JSONResponse(printable_data({"error": str(error)}), status_code=404)
        except Exception as error:  # whatever is in a run: the terminal is no place for its traceback
            return JSONResponse(printable_data({"error": f"unexpected: {describe(error)}"}), status_code=500)
        return found if isinstance(found, Response) else JSONResponse(printable_data(found))

    return endpoint


def _reading(method: Callable[[Request, bytes], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for something that is sent."""

    async def endpoint(question: Request) -> Response:
        body = bytearray()
        try:
            async for part in question.stream():
                body += part
                if len(body) > LARGEST_BODY:
                    return JSONResponse({"error": "too long"}, status_code=413)
        except ClientDisconnect:
            return Response(status_code=400)
        return await run_in_threadpool(_answering(lambda asked: method(asked, bytes(body))), question)

    return endpoint


def _page(_: Request) -> Response:
    return HTMLResponse((Path(__file__).parent / "static" / "lab.html").read_text(encoding="utf-8"))


def _static(question: Request) -> Response:
    name = question.path_params["name"]
    if name not in STATIC:
        return JSONResponse({"error": "no such file"}, status_code=404)
    folder, kind = STATIC[name]
    return FileResponse(folder / name, media_type=kind)
