"""Class 11: who asks the lab without being its page, or asks for what is not there."""

import json
import logging
import os
import shutil
import socket
from collections.abc import Iterator

import pytest

from tests.harness.lab_server import Served, serving
from tests.harness.stored_bench import stored_bench

MARKUP = (
    "<img src=x onerror=alert(1)>",
    "a?b#c",
    "%2e%2e%2f",
    "new\nline",
    "\x1b]0;owned\x07",
    "bad\udcff\udcfe",
)
"""Names that a folder of a foreign archive may have; the last one is no UTF-8."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("lab")
    run = stored_bench(folder / "runs")
    (folder / "secret").write_text("SECRET")
    shutil.copy(run / "run.json", folder / "run.json")  # the folder of the root is no run all the same
    with serving(folder, "runs") as found:
        yield found


@pytest.fixture
def place(served: Served) -> str:
    (run,) = (one for one in (served.folder / "runs").iterdir() if "_bench_" in one.name)
    return f"/{served.lab.token}/api/runs/0/{run.name}"


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that is asked for brings words of its own to the terminal that the lab runs in."""
    with caplog.at_level(logging.ERROR):
        yield
        assert not caplog.records


def raw(served: Served, data: bytes) -> tuple[int, bytes]:
    """What a socket is told that says just this."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        try:
            connection.sendall(data)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        except ConnectionError:  # it does not listen to the end
            return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def request(
    served: Served, target: str, method: str = "GET", more: str = "", host: str | None = None
) -> bytes:
    host = f"Host: 127.0.0.1:{served.port}\r\n" if host is None else host
    return f"{method} {target} HTTP/1.1\r\n{host}Connection: close\r\n{more}\r\n".encode("latin-1")


PATHS = (
    *("/TOKEN/api/runs/0/..%2f..%2fsecret", "/TOKEN/api/runs/0/%2e%2e", "/TOKEN/api/runs/0/%252e%252e"),
    *("/TOKEN/api/runs/0/..%5c..", "/TOKEN/api/runs/0/%c0%ae%c0%ae", "/TOKEN/api/runs/0/a%00b"),
    *("/TOKEN/static/..%2fserver.py", "/TOKEN/static/../server.py", "/TOKEN/api/runs/0/" + "a" * 300),
    *("http://evil.example/TOKEN/api/runs", "//TOKEN/api/runs", "/TOKEN;x/api/runs", "/TOKEN/api/runs#x"),
    *("/page/%C3%A9/0/x", "/page/" + "0" * 32 + "/0/x", "/page/" + "0" * 32 + "/0/..%2f..%2fsecret"),
)


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out(served: Served, path: str) -> None:
    status, body = raw(served, request(served, path.replace("TOKEN", served.lab.token)))
    assert status == 404
    assert b"SECRET" not in body


@pytest.mark.parametrize("path", ["/TOKEN/api/runs/{}/x", "/page/0/{}/x"])
def test_a_number_of_thousands_of_digits(served: Served, path: str) -> None:
    long = path.format("9" * 5_000).replace("TOKEN", served.lab.token)
    assert raw(served, request(served, long))[0] == 403


@pytest.mark.parametrize("asked", [
    "from=1e308", "from=-1e308", "from=inf", "from=0&to=1e308", "from=-inf&to=inf", "from=nan", "from=0&to=",
])  # fmt: skip
@pytest.mark.parametrize("what", ["energy", "trace"])
def test_times_that_no_clock_shows(served: Served, place: str, what: str, asked: str) -> None:
    job = "jobs/0002_board_softmax-numpy-game_rep1"
    status, body = raw(served, request(served, f"{place}/{what}?recording={job}&{asked}"))
    assert (status, json.loads(body)) == (404, {"error": "not a time"})


@pytest.mark.parametrize("points", ["inf", "-1e308", "nan", "0", "1e9"])
def test_points_that_no_page_has(served: Served, place: str, points: str) -> None:
    job = "jobs/0002_board_softmax-numpy-game_rep1"
    status, body = raw(served, request(served, f"{place}/trace?recording={job}&points={points}"))
    assert status in (200, 404)
    assert len(body) < 200_000


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PUT", "DELETE", "PATCH", "POST", "get"])
def test_other_methods_are_refused(served: Served, place: str, method: str) -> None:
    assert raw(served, request(served, place, method))[0] == 403
    assert raw(served, request(served, f"{place}/notes", method))[0] == 403


def test_head_says_no_more_than_get(served: Served, place: str) -> None:
    assert raw(served, request(served, place, "HEAD")) == (200, b"")
    assert raw(served, request(served, place.replace(served.lab.token, "x"), "HEAD")) == (404, b"")


HOSTS = (
    *("", "Host: LOCALHOST:PORT\r\n", "Host: 127.0.0.1.:PORT\r\n", "Host: 127.1:PORT\r\n"),
    *("Host: a@127.0.0.1:PORT\r\n", "Host: [::1]:PORT\r\n", "Host: 127.0.0.1:PORT\r\nHost: evil\r\n"),
    "Host: evil\r\nX-Forwarded-Host: 127.0.0.1:PORT\r\nForwarded: host=127.0.0.1:PORT\r\n",
)


@pytest.mark.parametrize("host", HOSTS)
def test_one_host_and_its_own_name(served: Served, place: str, host: str) -> None:
    refused = raw(served, request(served, place, host=host.replace("PORT", str(served.port))))
    assert refused[0] in (400, 403)
    assert b"jobs" not in refused[1]
    assert raw(served, f"GET {place} HTTP/1.0\r\n\r\n".encode())[0] == 403
    assert raw(served, request(served, place, host="Host: evil\r\nUpgrade: websocket\r\n"))[0] == 403


def test_headers_beyond_measure(served: Served, place: str) -> None:
    for more in ("X: " + "a" * (1 << 20) + "\r\n", "".join(f"X{i}: a\r\n" for i in range(20_000))):
        assert raw(served, request(served, place, more=more))[0] in (0, 400)
    with socket.create_connection(("127.0.0.1", served.port)) as never_ends:
        never_ends.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert raw(served, request(served, place))[0] == 200, "others are answered meanwhile"


def test_a_second_question_inside_a_first(served: Served, place: str) -> None:
    """Two lengths: what follows the shorter one is no question of its own."""
    own = f"Host: 127.0.0.1:{served.port}\r\nOrigin: http://127.0.0.1:{served.port}\r\n"
    lengths = "Content-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    inner = request(served, f"/{served.lab.token}/api/runs").decode()
    status, body = raw(served, f"POST {place}/notes HTTP/1.1\r\n{own}{lengths}\r\n0\r\n\r\n{inner}".encode())
    assert status in (400, 404)
    assert json.loads(body[: body.index(b"}") + 1]).keys() == {"error"} if body else True
    assert not list((served.folder / "runs").glob("*/notes.jsonl"))


@pytest.mark.parametrize("name", MARKUP)
def test_names_of_runs_are_text(served: Served, place: str, name: str) -> None:
    copy = served.folder / "runs" / name
    shutil.copytree(served.folder / "runs" / place.rsplit("/", 1)[1], copy)
    (copy / "report.html").write_text("<p>its page</p>")
    try:
        status, body = raw(served, request(served, f"/{served.lab.token}/api/runs"))
        assert status == 200
        assert b"\x1b" not in body
        runs = [one for one in json.loads(body)["runs"] if "_bench_" not in one["run"]]
        assert [one["state"] for one in runs] == ["interrupted"]
        assert all(ord(letter) < 128 and letter not in " <>?#" for letter in runs[0]["page"])
        shown = raw(served, request(served, runs[0]["page"]))
        assert shown in ((200, b"<p>its page</p>"), (404, shown[1])), shown
    finally:
        shutil.rmtree(os.fsencode(copy))


def test_what_nobody_foresaw_is_no_traceback(
    served: Served, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise KeyError("\x1b]0;owned\x07")

    monkeypatch.setattr("harness.lab.server.read_notes", breaks)
    status, body = raw(served, request(served, f"{place}/notes"))
    assert status == 500
    assert "unexpected" in json.loads(body)["error"]
    assert b"\x1b" not in body
