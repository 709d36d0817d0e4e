"""Notes and tags in the lab, and what an unfriendly folder or client does to it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.support.wait import WebDriverWait

from harness.cli import run as joulefleet
from harness.lab.folders import MOST_RUNS, Folders
from joulefleet.errors import ConfigError, StorageError
from joulefleet.runstore import RunStore
from joulefleet.runstore.notes import LONGEST, MOST_BYTES, NOTES_FILE, RunNote, add_note, read_notes, tags
from tests.harness.browser import browser, console_errors
from tests.harness.lab_server import Served, serving

NASTY = '<img src=x onerror="document.title=1"> #baseline'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("lab")
    with RunStore(folder / "runs").create("one", kind="bench") as run:
        run.subfolder("jobs/0001_board")
    with serving(folder, "runs") as found:
        yield found


@pytest.fixture
def run(served: Served) -> Iterator[Path]:
    """The run, without notes afterwards."""
    (path,) = (served.folder / "runs").glob("*_one_*")
    yield path
    (path / NOTES_FILE).unlink(missing_ok=True)


def api(path: Path) -> str:
    return f"/api/runs/0/{path.name}"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["#a and #b-2, then #c"], ("a", "b-2", "c")),
        (["#a #b", "#-a", "#b"], ("b",)),
        (["#-a", "#a"], ("a",)),
        (["issue #25, C#, x#y, #", "#" + "x" * 41], ()),
        (["#Größe"], ("Größe",)),
    ],
)
def test_tags_are_words_of_notes(run: Path, texts: list[str], found: tuple[str, ...]) -> None:
    for text in texts:
        add_note(run, text)
    assert tags(read_notes(run)) == found


def test_the_command_line_lists_tags(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert joulefleet(["runs", "note", str(run), "fan off #baseline"]) == 0
    capsys.readouterr()
    assert joulefleet(["runs", "list", "--root", str(run.parent), "--json"]) == 0
    assert [one["tags"] for one in json.loads(capsys.readouterr().out)] == [["baseline"]]


def test_a_note_is_written_found_and_nothing_else_is_touched(served: Served, run: Path) -> None:
    before = {path: path.stat() for path in run.rglob("*")}
    status, data, _ = served.note(api(run), "fan off #Baseline", "0001_board", sec_fetch_site="same-origin")
    assert (status, [one["text"] for one in data["notes"]]) == (200, ["fan off #Baseline"])
    assert [(one.text, one.job) for one in read_notes(run)] == [("fan off #Baseline", "0001_board")]
    after = {path: path.stat() for path in run.rglob("*") if path.name != NOTES_FILE}
    assert {p: (s.st_mtime_ns, s.st_size) for p, s in after.items()} == {
        p: (s.st_mtime_ns, s.st_size) for p, s in before.items()
    }
    for words, n in {"%23baseline": 1, "%23base+one": 1, "bench+complete": 1, "%23other": 0}.items():
        found = served.data(f"/api/runs?words={words}")
        assert (len(found["runs"]), found["all"]) == (n, 1)
    served.note(api(run), "#-Baseline")
    assert served.data("/api/runs")["runs"][0]["tags"] == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ""},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"host": "evil.example"},
        {"content_type": "text/plain"},
        {"content_type": ""},
    ],
)
def test_who_is_not_the_page_writes_nothing(served: Served, run: Path, headers: dict[str, str]) -> None:
    assert served.note(api(run), "x", **headers)[0] == 403
    assert not (run / NOTES_FILE).exists()


def test_what_is_no_note_is_refused(served: Served, run: Path) -> None:
    own = {"content_type": "application/json", "origin": f"http://127.0.0.1:{served.port}"}
    bodies = [b"", b"[]", b"\xff", b'{"text": 1, "job": ""}', b'{"text": "x"}', b"[" * 9_000, b"x" * 20_000]
    statuses = [served.ask(f"{api(run)}/notes", body=body, **own)[0] for body in bodies]
    assert statuses == [404] * 6 + [413]
    for text, job in (("", ""), ("x" * (LONGEST + 1), ""), ("x", "../.."), ("x", "nowhere"), ("x", ".")):
        assert served.note(api(run), text, job)[0] == 404
    assert served.note("/api/runs/0/nothing", "x")[0] == 404
    assert served.ask(api(run), body=b"{}", **own)[0] == 405
    assert not (run / NOTES_FILE).exists()
    assert served.note(api(run), "\u00e9" * LONGEST)[0] == 200, "the longest, six bytes a letter"


@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "folder"])
def test_notes_that_lie_elsewhere_are_neither_written_nor_read(
    served: Served, run: Path, tmp_path: Path, how: str
) -> None:
    secret, notes = tmp_path / "secret", run / NOTES_FILE
    secret.write_text("")
    {"link": lambda: notes.symlink_to(secret), "hard link": lambda: notes.hardlink_to(secret),
     "pipe": lambda: os.mkfifo(notes), "folder": notes.mkdir}[how]()  # fmt: skip
    try:
        assert served.note(api(run), "x")[0] == 404
        (row,) = served.data("/api/runs")["runs"]
        assert (row["state"], bool(row["problem"])) == ("complete", how != "hard link")
        assert secret.read_text() == ""
    finally:
        notes.rmdir() if how == "folder" else notes.unlink()


def test_notes_have_an_end(run: Path) -> None:
    note = RunNote(written_utc="2026-01-01T00:00:00Z", text="x" * LONGEST)  # type: ignore[arg-type]
    line = note.model_dump_json() + "\n"
    (run / NOTES_FILE).write_text(line * (MOST_BYTES // 2 // len(line) + 1))
    with pytest.raises(ConfigError):
        add_note(run, "one more")
    (run / NOTES_FILE).write_text(line * (MOST_BYTES // len(line) + 1))
    with pytest.raises(StorageError):
        read_notes(run)


def test_a_run_that_is_a_link_is_not_followed(served: Served, run: Path, tmp_path: Path) -> None:
    with RunStore(tmp_path).create("private", kind="bench") as private:
        pass
    link = run.parent / "20990101T000000Z_private_0"
    link.symlink_to(private.path)
    try:
        assert served.ask(api(link))[0] == 404
        assert served.note(api(link), "x")[0] == 404
        row = next(one for one in served.data("/api/runs")["runs"] if one["run"] == link.name)
        assert (row["state"], row["name"], row["page"]) == ("unreadable", None, None)
    finally:
        link.unlink()


def test_names_that_are_no_text_hide_no_other_run(served: Served, run: Path) -> None:
    odd = [Path(os.fsdecode(os.fsencode(run.parent) + name)) for name in (b"/3\xff", "/4\u202e<b>".encode())]
    for folder in odd:
        folder.mkdir()
        (folder / "report.html").write_text("x")
    try:
        found = [one["run"] for one in served.data("/api/runs")["runs"]]
        assert found == ["4\\u202e<b>", "3\\udcff", run.name]
        served.note(api(run), "a\u202eb\x1b]0;c")
        assert served.data(f"{api(run)}/notes")["notes"][0]["text"] == "a\\u202eb\\x1b]0;c"
    finally:
        for folder in odd:
            (folder / "report.html").unlink()
            folder.rmdir()


def test_many_runs_are_listed_quickly(
    run: Path, tmp_path: Path, campaign_count: Callable[[int, int], int]
) -> None:
    text, count = (run / "run.json").read_text(), campaign_count(2_000, 10_000)
    for number in range(count):
        folder = tmp_path / f"2026_{number:05d}"
        folder.mkdir()
        if number != count - 10:
            (folder / "run.json").write_text(text if number != count - 5 else text[:50])
    folders = Folders((tmp_path, tmp_path / "nothing"))
    began_s = time.process_time()
    found = folders.runs()
    first_s = time.process_time() - began_s
    assert folders.runs(("nothing",))["runs"] == []
    assert first_s < time.process_time() - began_s - first_s, "only what is shown was read"
    assert first_s < 1.0
    assert (len(found["runs"]), found["all"]) == (MOST_RUNS, count)
    odd = [int(one["run"][5:]) for one in found["runs"] if one["problem"]]
    assert odd == [count - 5, count - 10], "damaged, and without a record"
    (tmp_path / found["runs"][0]["run"] / "run.json").unlink()  # removed while it is looked at
    assert folders.runs()["runs"][0]["state"] == "unreadable"


def test_slow_clients_hold_nobody_up(served: Served, run: Path) -> None:
    waiting = []
    try:
        for number in range(60):
            client = socket.create_connection(("127.0.0.1", served.port))
            head = f"POST /{served.lab.token}{api(run)}/notes HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
            whole = f"Origin: http://127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
            client.sendall((head + (whole + "Content-Length: 100\r\n\r\n{" if number % 2 else "")).encode())
            waiting.append(client)
        began_s = time.monotonic()
        assert served.data("/api/runs")["all"] == 1
        assert served.note(api(run), "x")[0] == 200
        assert time.monotonic() - began_s < 10
    finally:
        for client in waiting:
            client.close()
    assert len(read_notes(run)) == 1


def test_the_page_opens_from_a_link_and_nothing_else_does(served: Served, run: Path) -> None:
    follows = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert served.ask("/", **follows)[0] == 200
    for changed in ({"sec_fetch_dest": "iframe"}, {"sec_fetch_mode": "no-cors"}, {"origin": "null"}):
        assert served.ask("/", **{**follows, **changed})[0] == 403
    for path in ("/api/runs", api(run), "/static/lab.js"):
        assert served.ask(path, **follows)[0] == 403


def test_the_word_is_in_no_argument_of_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require_program: Callable[[str, str], str]
) -> None:
    """A real server opens a real browser by a file that others cannot read; the page comes."""
    import uvicorn

    seen: dict[str, object] = {}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda url: seen.update(url=url))

    original = uvicorn.Server.run

    def run_server(server: uvicorn.Server, **given: object) -> None:
        thread = threading.Thread(target=original, args=(server,), kwargs=given)
        thread.start()
        try:
            look()
        finally:
            server.should_exit = True
            thread.join()

    def look() -> None:
        (file,) = tmp_path.glob("joulefleet/lab.html")
        seen["mode"] = file.stat().st_mode & 0o777
        seen["text"] = file.read_text()
        port = int(str(seen["text"]).split("127.0.0.1:")[1].split("/")[0])
        for family, address in ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.2")):
            with socket.socket(family) as other:
                assert other.connect_ex((address, port)), "nobody listens but on 127.0.0.1"
        with browser(
            require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
        ) as driver:
            driver.get(str(seen["url"]))
            WebDriverWait(driver, 30).until(lambda page: page.title == "joulefleet lab")
            seen["errors"] = console_errors(driver)

    monkeypatch.setattr(uvicorn.Server, "run", run_server)
    assert joulefleet(["lab", "--root", str(tmp_path / "runs")]) == 0
    word = str(seen["text"]).split("127.0.0.1:")[1].split("/")[1]
    assert word not in str(seen["url"])
    assert (seen["mode"], seen["errors"]) == (0o600, [])
    assert not list(tmp_path.glob("joulefleet/lab*"))


def test_chromium_writes_a_note_and_finds_its_tag(
    served: Served, run: Path, require_program: Callable[[str, str], str]
) -> None:
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        driver.get(f"{served.address}#/0/{run.name}")
        WebDriverWait(driver, 60).until(lambda page: page.find_elements("css selector", ".notes textarea"))
        driver.find_element("css selector", ".notes textarea").send_keys(NASTY)
        driver.find_element("css selector", ".notes button").click()
        WebDriverWait(driver, 60).until(lambda page: page.find_elements("css selector", ".notes li"))
        assert NASTY in driver.find_element("css selector", ".notes li").text
        assert driver.execute_script("return document.querySelectorAll('img').length") == 0
        assert [one.text for one in read_notes(run)] == [NASTY]
        driver.get(f"{served.address}#")
        tag = WebDriverWait(driver, 60).until(lambda page: page.find_elements("css selector", "td button"))[0]
        assert tag.text == "#baseline"
        tag.click()
        search = driver.find_element("css selector", "input[type=search]")
        assert search.get_attribute("value") == "#baseline"
        search.send_keys("x")
        WebDriverWait(driver, 60).until(lambda page: not page.find_elements("css selector", "td button"))
        assert console_errors(driver) == []
