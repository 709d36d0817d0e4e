"""What the host does while a transfer is measured: nothing but the transfer."""

from typing import Any, cast

import pytest

from device_agents.job import BlobRef, Job
from device_agents.protocol import Blob, Want
from device_agents.session import running_job as module
from device_agents.session.link import AgentLink
from device_agents.session.running_job import RunningJob

DATA = b"weights"


class RecordingLink:
    """Keeps what the host sends and hands out one blob."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any], _block: bytes = b"") -> None:
        self.sent.append(message)

    def receive_blob(self, *_: object) -> bytes:
        return DATA


def round_on(link: RecordingLink) -> RunningJob:
    job = Job(workload="softmax", samples=1, epochs=1, seed=0, upload=True, model=BlobRef.of(DATA))
    return RunningJob(cast("AgentLink", link), job, "j", lambda _: True, {"model": DATA})


def test_a_blob_is_handed_over_without_hashing_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    link = RecordingLink()
    work = round_on(link)
    wanted = BlobRef.of(DATA)
    monkeypatch.setattr(BlobRef, "of", lambda _: pytest.fail("hashed while the device waits"))
    work._answer(Want(seq=1, job_id="j", name="model", **wanted.model_dump()), 0)
    assert {key: link.sent[0][key] for key in ("sha256", "size")} == wanted.model_dump()


def test_the_end_of_an_upload_is_confirmed_before_the_weights_are_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = RecordingLink()
    sent_before: list[str] = []

    def read_model(*_: object) -> dict[str, Any]:
        sent_before.extend(message["type"] for message in link.sent)
        return {}

    monkeypatch.setattr(module, "read_model", read_model)
    header = Blob(seq=1, job_id="j", name="result", **BlobRef.of(DATA).model_dump())
    round_on(link)._answer(header, 0)
    assert sent_before == ["got"]
