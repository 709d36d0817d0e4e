"""A job that goes through every phase, and the phases by name: for tests that disturb one of them."""

from device_agents.job import BackgroundLoad, BlobRef, Job, SyncPattern
from device_agents.protocol import EpochMarker, Phase
from tests.device_agents.agents import a_model, softmax

PHASES = {
    "sync": (Phase.SYNC, 0),
    "download": (Phase.DOWNLOAD, 0),
    "setup": (Phase.SETUP, 0),
    "load": (Phase.LOAD, 0),
    "warmup": (Phase.WARMUP, 1),
    "probe": (Phase.EPOCH, 1),
    "wait": (Phase.WAIT, 0),
    "epochs": (Phase.EPOCH, 2),
    "upload": (Phase.UPLOAD, 0),
}
BEFORE_THE_MODEL_IS_THERE = ("sync", "download")
MODEL = a_model()


def job_of_all_phases(on_disconnect: str, **changes: object) -> Job:
    return softmax(
        **{
            "samples": 30_000,
            "upload": True,
            "on_disconnect": on_disconnect,
            "model": BlobRef.of(MODEL),
            "sync": SyncPattern(order=3, bit_ns=5_000_000),
            "background": BackgroundLoad.constant(0.05),
            "load_only_s": 0.1,
            "warmup_epochs": 1,
            **changes,
        }
    )


def begins(marker: EpochMarker, phase: str) -> bool:
    return (marker.kind, marker.epoch) == PHASES[phase] and marker.edge == "start"


def is_prefix(seen: list[EpochMarker] | tuple[EpochMarker, ...], markers: tuple[EpochMarker, ...]) -> bool:
    return tuple(seen) == markers[: len(seen)]
