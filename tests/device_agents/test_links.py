"""Links as laboratories have them: slow, far away, and cut in the middle."""

import hashlib
import secrets
import threading
import time
from pathlib import Path

import pytest

from device_agents.transport.host_keys import fetch_host_key, trust
from device_agents.transport.ssh import SshTarget, SshTransport
from joulefleet.errors import DeviceUnreachable
from tests.device_agents.netns import host
from tests.device_agents.relay import relay
from tests.device_agents.ssh_server import SshServer, ssh_server


def target(server: SshServer, port: int, folder: Path) -> SshTarget:
    known = folder / "known_hosts"
    trust(known, "127.0.0.1", port, fetch_host_key("127.0.0.1", port))
    return SshTarget(host="127.0.0.1", port=port, known_hosts=known, key=server.folder / "client")


def test_a_far_device_answers_after_its_delay(server: SshServer, tmp_path: Path) -> None:
    trips_s = []
    with (
        relay(server.port, delay_s=0.05) as link,
        SshTransport(target(server, link.port, tmp_path)) as device,
        device.open(["cat"]) as channel,
    ):
        for _ in range(3):
            start_s = time.monotonic()
            channel.send(b"x\n")
            channel.receive_line(5)
            trips_s.append(time.monotonic() - start_s)
    assert min(trips_s) >= 0.1  # there and back


def test_an_upload_over_a_link_that_breaks_goes_on_later(server: SshServer, tmp_path: Path) -> None:
    data = secrets.token_bytes(2_000_000)
    sha256 = hashlib.sha256(data).hexdigest()
    place = str(tmp_path / "payload")
    with relay(server.port, rate_bytes_s=1_500_000) as link:
        address = target(server, link.port, tmp_path)

        def cut_when_some_is_there() -> None:
            part = Path(f"{place}.{sha256[:16]}.part")
            while not part.exists() or part.stat().st_size < 100_000:
                time.sleep(0.005)
            link.cut()

        threading.Thread(target=cut_when_some_is_there, daemon=True).start()
        with SshTransport(address) as device, pytest.raises(DeviceUnreachable):
            device.upload(data, place, sha256)
        assert not Path(place).exists()
        link.rate_bytes_s = 0
        with SshTransport(address) as device:
            sent = device.upload(data, place, sha256)
    assert 0 < sent < len(data)
    assert Path(place).read_bytes() == data


@pytest.mark.xdist_group("netns")
def test_two_devices_in_their_own_networks_and_one_is_cut(tmp_path: Path, sshd: str) -> None:
    with (
        host() as near,
        host() as far,
        ssh_server(tmp_path / "near", sshd, host=near) as first,
        ssh_server(tmp_path / "far", sshd, host=far) as second,
        SshTransport(first.target()) as healthy,
        SshTransport(second.target()) as doomed,
    ):
        channel = doomed.open(["cat"])
        channel.send(b"here\n")
        assert channel.receive_line(5) == b"here"
        far.cut()
        with pytest.raises(DeviceUnreachable, match="silent"):
            channel.receive_line(0.5)
        assert healthy.run(["echo", "fine"]).stdout == b"fine\n"
        with pytest.raises(DeviceUnreachable):
            SshTransport(second.target(), timeout_s=1.0)
        far.mend()
        channel.send(b"again\n")
        assert channel.receive_line(20) == b"again"  # TCP repeats what was lost
        channel.close()
