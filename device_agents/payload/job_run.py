"""One job from its first record to its last.

Phases in order: sync, download, setup, load (alone), warmup, epoch 1 (the probe), wait, the other epochs,
upload, sync. Each has a start and an end marker; what a job does not ask for is left out.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from device_agents.payload import sync_pattern
from device_agents.payload.faults import CANCELLED, LINK_LOST, Interrupted, JobFault, LinkLost
from device_agents.payload.interference import Interference
from device_agents.payload.link.conversation import Conversation, cached, store
from device_agents.payload.link.wire import PROTOCOL_VERSION
from device_agents.payload.recording.clocks import changes
from device_agents.payload.recording.journal import JobJournal, Markers
from device_agents.payload.recording.recorders import Recorders
from device_agents.payload.trainer import Files, JobTrainer, build_trainer, import_backend

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.context import AgentContext
    from device_agents.payload.job import BlobSpec, JobSpec
    from device_agents.payload.state_folder import JobFolder


class JobRun:
    """Runs a job and leaves its end in the journal, whatever happens on the way."""

    def __init__(self, context: AgentContext, spec: JobSpec, job_id: str, folder: JobFolder) -> None:
        self._context = context
        self._spec = spec
        self.job_id = job_id
        self._folder = folder
        self._journal = JobJournal(folder.journal)
        self._markers = Markers(self._journal, context.sender)
        try:
            self._recorders = Recorders(context, spec, folder.telemetry, self._markers)
        except BaseException:  # no second journal: nobody will close the first
            self._journal.close()
            raise
        self._host = Conversation(context, job_id)
        self._began = context.now()
        self._cancelled = False
        self._epochs_cpu_s = 0.0
        # What the end will say.
        self._outcome = "finished"
        self._epochs = 0
        self._loss: float | None = None
        self._loss_rms: float | None = None
        self._uploaded = False
        self._result: dict[str, Any] | None = None
        self._background: dict[str, Any] | None = None
        self._random_operations = ""

    def link_lost(self) -> None:
        """The host is gone; called from the reader thread."""
        with contextlib.suppress(JobFault):
            self._journal.append({"type": "link_lost", "t_dev_ns": time.monotonic_ns()})
        if self._spec.on_disconnect == "stop":
            self._context.interrupter.request(LINK_LOST)

    def cancel(self) -> None:
        """End early; from any thread, also before `run`."""
        self._cancelled = True
        self._context.interrupter.request(CANCELLED)

    def run(self) -> None:
        """Do it all. Does not raise."""
        self._context.sender.quiet = self._spec.quiet
        self._context.interrupter.begin(self._spec.deadline_s)
        # What came before this job could hear of it.
        if self._cancelled:
            self.cancel()
        if self._context.reader.gone:
            self.link_lost()
        code = message = ""
        try:
            self._work()
        except Interrupted as error:
            self._outcome, message = error.reason, self._recorders.limits.message
        except LinkLost as error:
            self._outcome, message = LINK_LOST, str(error)
        except JobFault as error:
            self._outcome, code, message = "failed", error.code, str(error)
        except Exception as error:
            self._outcome, code, message = "failed", "crashed", f"{type(error).__name__}: {error}"
            traceback.print_exc()  # into agent.log
        finally:
            self._context.interrupter.end()
        self._finish(code, message)

    def _work(self) -> None:
        about = {"job_id": self.job_id, "version": PROTOCOL_VERSION, "pid": os.getpid()}
        self._journal.append({"type": "begin", **about, **self._began})
        self._tell({"type": "accepted"})
        self._recorders.start()
        self._sync("before")
        with self._interference():
            self._download()
            trainer = self._setup()
            self._load_only()
            self._warm_up(trainer)
            if self._train(trainer):
                self._upload(trainer)
            else:
                self._outcome = "stopped"
        self._sync("after")

    def _download(self) -> None:
        ref = self._spec.model
        if ref is None:
            return
        self._markers.start("download", bytes=ref.size)
        self._host.download("model", ref, self._folder.model)
        self._markers.end("download", bytes=ref.size)

    def _setup(self) -> JobTrainer:
        """Data, graphs, imports, model: everything between having the weights and the first step."""
        self._markers.start("setup")
        files = Files(
            model=self._folder.model if self._spec.model is not None else None,
            shard=self._cached("shard", self._spec.shard) if self._spec.shard is not None else None,
            graphs={size: self._cached(f"graph-{size}", ref) for size, ref in self._spec.graphs.items()},
            task=self._cached("task", self._spec.task) if self._spec.task is not None else None,
        )
        import_backend(self._spec)
        trainer = self._context.interrupter.run(lambda: build_trainer(self._spec, files))
        self._markers.end("setup")
        return trainer

    def _cached(self, name: str, ref: BlobSpec) -> Path:
        """A blob from the cache, or from the host if it is not there."""
        path = self._context.state.cache / ref.sha256
        if not cached(path, ref):
            self._host.download(name, ref, path)
        return path

    def _sync(self, when: str) -> None:
        pattern = self._spec.sync
        if pattern is None:
            return
        start_ns = self._markers.start("sync", 0, when=when, **asdict(pattern))
        late_ns = self._context.interrupter.run(lambda: sync_pattern.play(pattern, start_ns))
        self._markers.end("sync", 0, when=when, **sync_pattern.pack_lateness(late_ns))

    @contextlib.contextmanager
    def _interference(self) -> Iterator[None]:
        if self._spec.background is None:
            yield
            return
        load = Interference(self._spec.background)
        self._context.interrupter.run(load.start)
        try:
            yield
        finally:
            self._background = load.stop()

    def _load_only(self) -> None:
        """The background load by itself, with everything in memory that the training will find there."""
        if not self._spec.load_only_s:
            return
        self._markers.start("load")
        self._context.interrupter.run(lambda: time.sleep(self._spec.load_only_s))
        self._markers.end("load")

    def _warm_up(self, trainer: JobTrainer) -> None:
        for epoch in range(1, self._spec.warmup_epochs + 1):
            self._markers.start("warmup", epoch)
            self._context.interrupter.run(trainer.epoch)
            self._markers.end("warmup", epoch)

    def _train(self, trainer: JobTrainer) -> bool:
        """All epochs, or the first one only. Returns whether it went all the way."""
        self._recorders.begin_summary()
        duration_ns = self._epoch(trainer, 1)
        if self._spec.probe and not self._probe(trainer, duration_ns):
            return False
        for epoch in range(2, self._spec.epochs + 1):
            self._epoch(trainer, epoch)
        return True

    def _epoch(self, trainer: JobTrainer, epoch: int) -> int:
        cpu_s = time.process_time()
        start_ns = self._markers.start("epoch", epoch)
        seen = self._context.interrupter.run(trainer.epoch)
        end_ns = self._markers.end("epoch", epoch)
        self._epochs_cpu_s += time.process_time() - cpu_s
        self._epochs = epoch
        self._random_operations = trainer.random_operations
        self._loss, self._loss_rms = _finite(seen.loss), _finite(seen.loss_rms)
        return end_ns - start_ns

    def _probe(self, trainer: JobTrainer, duration_ns: int) -> bool:
        """Report the first epoch and wait to be told whether to go on."""
        self._markers.start("wait")
        report = {
            "type": "probe_done",
            "loss": self._loss,
            "loss_rms": self._loss_rms,
            "duration_ns": duration_ns,
            "samples": trainer.samples,
            "telemetry": self._recorders.summary(),
        }
        self._journal.append(report)
        self._journal.sync()
        self._tell(report)
        go_on, decided_by = self._decision()
        self._journal.append(
            {"type": "decision", "go_on": go_on, "by": decided_by, "t_dev_ns": time.monotonic_ns()}
        )
        self._markers.end("wait")
        return go_on

    def _decision(self) -> tuple[bool, str]:
        try:
            answer = self._host.hear("decide", self._spec.decision_timeout_s)
        except LinkLost:
            if self._spec.on_disconnect == "stop":
                raise
            return True, "policy"
        return answer.get("action") == "continue", "host"

    def _upload(self, trainer: JobTrainer) -> None:
        """Keep the result on the device first: if the link dies, a new connection can fetch it."""
        if not self._spec.upload:
            return
        from device_agents.payload.tensors import pack_arrays

        data = pack_arrays(trainer.state())
        self._result = store(self._folder.result, data)
        self._markers.start("upload", bytes=len(data))
        try:
            self._host.upload("result", self._result, data)
        except LinkLost:
            if self._spec.on_disconnect == "stop":
                raise
            return  # the phase has no end: it did not end
        self._markers.end("upload", bytes=len(data))
        self._uploaded = True

    def _tell(self, message: dict[str, Any]) -> None:
        """Send what the host should know now; if it is gone, the job goes on only if it is to finish."""
        try:
            self._host.say(message)
        except LinkLost:
            if self._spec.on_disconnect == "stop":
                raise

    def _finish(self, code: str, message: str) -> None:
        self._recorders.stop()
        end = self._context.now()
        done = {
            "type": "done",
            "outcome": self._outcome,
            "code": code,
            "message": message[:2000],
            "problems": [problem[:500] for problem in self._recorders.problems[:8]],
            "epochs": self._epochs,
            "loss": self._loss,
            "uploaded": self._uploaded,
            "result": self._result,
            "background": self._background,
            "random_operations": self._random_operations[:100],
            "cpu": {"epochs_s": self._epochs_cpu_s, "agent_s": self._recorders.cpu_s()},
            "t_dev_ns": end["clock"]["monotonic_ns"],
            **changes(self._began["clock"], end["clock"]),
        }
        with contextlib.suppress(JobFault):
            self._journal.append(done)
        self._journal.close()
        self._context.sender.quiet = False
        with contextlib.suppress(LinkLost):
            self._host.say(done)


def _finite(value: float | None) -> float | None:
    """None for what JSON has no word for: a training that has diverged."""
    return float(value) if value is not None and math.isfinite(value) else None
