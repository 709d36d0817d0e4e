"""Class 9: the network of a Ray cluster. One of our own is ours alone; tokens are not for others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.scale.cluster import _ask_for_token, connected
from joulefleet.errors import JoulefleetError, MissingExtra

STRANGERS = 2 if os.environ.get("JOULEFLEET_CAMPAIGN") == "full" else 1  # each is tried for half a minute
OWN = """
import os, pathlib, subprocess, sys
for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
    os.environ.pop(name, None)
os.environ["HOME"] = sys.argv[1]
from emulator.scale.cluster import connected
def mine(pid):
    todo, found = [pid], {pid}
    while todo:
        for task in pathlib.Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found.add(child); todo.append(child)
    return found
with connected(num_cpus=1, object_store_memory=100 * 2**20):
    import ray
    ray.get(ray.remote(lambda: 1).remote())
    inodes = set()
    for pid in mine(os.getpid()):
        for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(fd)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and cells[9] in inodes:
                print("LISTENS", cells[1].split(":")[0])
    print("MODE", os.environ["RAY_AUTH_MODE"], len(os.environ["RAY_AUTH_TOKEN"]))
    address = ray.get_runtime_context().gcs_address
    other = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    code = f"import ray; ray.init(address={address!r}, logging_level=50); print('IN')"
    for extra in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64})[: int(sys.argv[2])]:
        command, env = [sys.executable, "-c", code], {**other, **extra}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        print("STRANGER", done.returncode != 0, "IN" in done.stdout)
"""


@pytest.mark.campaign
def test_a_cluster_of_our_own_listens_on_loopback_and_asks_for_a_token(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "-c", OWN, str(tmp_path), str(STRANGERS)],
        capture_output=True,
        text=True,
        timeout=150,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    listening = {line[1] for line in lines if line[0] == "LISTENS"}
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert listening, done.stderr
    assert listening <= loopback
    assert ["MODE", "token", "64"] in lines
    assert [line for line in lines if line[0] == "STRANGER"] == [["STRANGER", "True", "False"]] * STRANGERS
    assert not (tmp_path / ".ray").exists()  # no token is left in the home


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_token_that_others_can_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(mode)
    with pytest.raises(JoulefleetError, match="others can read"):
        _ask_for_token(own=False)
    token.chmod(0o600)
    _ask_for_token(own=False)
    assert os.environ["RAY_AUTH_MODE"] == "token"
    monkeypatch.delenv("RAY_AUTH_MODE")


@pytest.mark.parametrize(
    "others",
    ["write in its folder", "of the group write in its folder", "write above it", "own its folder",
     "own it", "write where a link to it is", "own a link to it"],
)  # fmt: skip
def test_a_token_that_others_can_replace_is_refused(
    others: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    folder, links = tmp_path / "above" / "keys", tmp_path / "links"
    folder.mkdir(parents=True)
    links.mkdir()
    token, link = folder / "token", links / "token"
    token.write_text("secret")
    token.chmod(0o600)
    link.symlink_to(token)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(link))
    links.chmod(0o1777)  # as /tmp is: nobody takes away what is of somebody else there
    _ask_for_token(own=True)
    if "own" in others:
        if os.geteuid():
            pytest.skip("giving files away needs root")
        owned = {"own it": token, "own its folder": folder, "own a link to it": link}[others]
        os.chown(owned, 12345, 12345, follow_symlinks=False)
    elif others == "write where a link to it is":
        links.chmod(0o777)
    else:
        (folder.parent if "above" in others else folder).chmod(0o770 if "group" in others else 0o777)
    with pytest.raises(JoulefleetError, match="others can replace") as refused:
        _ask_for_token(own=True)
    assert "RAY_AUTH_TOKEN" in str(refused.value.hint)


def test_a_ray_without_authentication_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "__version__", "2.51.2")
    with pytest.raises(MissingExtra, match="no authentication"), connected():
        pass
    assert not ray.is_initialized()


LURED = """
import os, socket, sys, threading
heard = []
trap = socket.create_server(("127.0.0.1", 0))
def listen():
    while True:
        peer, _ = trap.accept()
        heard.append(peer.recv(100))
threading.Thread(target=listen, daemon=True).start()
os.environ["HOME"] = sys.argv[1]
os.environ["RAY_ADDRESS"] = f"127.0.0.1:{trap.getsockname()[1]}"
os.environ["RAY_AUTH_TOKEN"] = ""
from emulator.scale.cluster import connected
with connected(num_cpus=1, object_store_memory=100 * 2**20):
    import ray
    print("OWN", ray.get(ray.remote(lambda: 7).remote()))
    print("TOKEN", len(os.environ["RAY_AUTH_TOKEN"]))
print("HEARD", len(heard))
"""


@pytest.mark.campaign
@pytest.mark.skipif(STRANGERS == 1, reason="a second cluster: half a minute")
def test_the_environment_does_not_lure_a_cluster_of_our_own_elsewhere(tmp_path: Path) -> None:
    """Somebody's address and an empty token in the environment, by one who had read SECURITY.md only."""
    pytest.importorskip("ray")
    command = [sys.executable, "-c", LURED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.stdout.split("\n")[-4:-1] == ["OWN 7", "TOKEN 64", "HEARD 0"], (
        done.stdout + done.stderr[-2000:]
    )


@pytest.mark.parametrize("others", ["a link to a file of others", "a file of others"])
def test_a_token_behind_a_link_is_no_other_token(
    others: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    target = tmp_path / "open"
    target.write_text("secret")
    target.chmod(0o666)
    link = tmp_path / "token"
    if others.startswith("a link"):
        link.symlink_to(target)
    else:
        os.link(target, link)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(link))
    with pytest.raises(JoulefleetError, match="others can read"):
        _ask_for_token(own=True)


@pytest.mark.parametrize("version", ["2.9.3", "1.13.0", "2.51.9rc1"])
def test_an_old_ray_is_not_taken_for_a_new_one(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As text 2.9 is more than 2.52."""
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "__version__", version)
    with pytest.raises(MissingExtra, match="no authentication"), connected():
        pass


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["blank", "header", "blank file", "empty file", "pipe", "device", "folder"])
def test_what_is_no_token_is_not_asked_for(
    kind: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried by hand against the code as it was: a cluster would have had a token that anybody guesses."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "token"
    if kind in ("blank", "header"):
        monkeypatch.setenv("RAY_AUTH_TOKEN", {"blank": "  ", "header": "abc\r\nX-Other: y"}[kind])
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir(mode=0o700)
    elif "file" in kind:
        path.write_text({"blank file": " \n", "empty file": ""}[kind])
        path.chmod(0o600)
    if kind not in ("blank", "header"):
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/dev/zero" if kind == "device" else str(path))
    with pytest.raises(JoulefleetError, match="no token"):
        _ask_for_token(own=own)
    monkeypatch.delenv("RAY_AUTH_MODE")
