"""`CpuTrainer`: clients one after the other, on as many cores as there are workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from device_agents.workloads import Generators
from emulator.training.local import LocalModel, LocalResult, blaming, run_epochs
from emulator.training.pool import Pool, keep_freed_memory, one_thread
from emulator.training.table import Scored, ScoreJob, TableTrainer, TrainJob
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from emulator.training.client_data import ClientData


class CpuTrainer(TableTrainer):
    """See `emulator.training.base.Trainer`.

    Args:
        model: What runs one client's epochs; each worker gets its own copy by being forked.
        clients: Everybody's data.
        workers: Processes; with 1 everything happens in this one.
    """

    implementation = "cpu"

    def __init__(self, model: LocalModel, clients: ClientData, workers: int) -> None:
        if workers < 1:
            raise ConfigError(f"{workers} training workers: at least one is needed")
        super().__init__(model.task, model.layout, clients)
        keep_freed_memory()
        self._model = model
        # A process of somebody else's pool may not have children; the results are the same without.
        alone = workers == 1 or multiprocessing.current_process().daemon
        self._pool: Pool[TrainJob | ScoreJob, Any] | None = None if alone else Pool(workers, self._do)

    def run_training(self, jobs: Sequence[TrainJob]) -> list[LocalResult]:
        """See `TableTrainer`; longest first, so that no worker starts a long one when the others are done."""
        length = [len(job.epochs) * self.clients.training_size(job.client) for job in jobs]
        order = np.argsort(length, kind="stable")[::-1]
        results = dict(zip(order.tolist(), self._run([jobs[i] for i in order]), strict=True))
        return [results[i] for i in range(len(jobs))]

    def run_scoring(self, jobs: Sequence[ScoreJob]) -> list[Scored]:
        """See `TableTrainer`."""
        return self._run(jobs)

    def close(self) -> None:
        """See `Trainer`."""
        if self._pool is not None:
            self._pool.close()

    def _run(self, jobs: Sequence[TrainJob | ScoreJob]) -> list[Any]:
        if self._pool is not None:
            return self._pool.run(jobs)
        with one_thread(), Generators().kept():
            return [self._do(job) for job in jobs]

    def _do(self, job: TrainJob | ScoreJob) -> LocalResult | Scored:
        """One job, in whatever process."""
        with blaming(self.task.code):
            if isinstance(job, TrainJob):
                return self._train(job)
            self._model.load(self.scored_weights(), None)
            x, y = self.samples_of(job)
            return Scored(len(y), *self._model.score_all(x, y, self.scoring_draws_of(job)))

    def _train(self, job: TrainJob) -> LocalResult:
        weights, velocity = self.state_of(job)
        if job.epochs.start:
            self._model.load(weights, velocity)
        else:
            self._model.load(self.global_weights(), None)
        self._model.anchor(self.global_weights(), job.proximal_mu)
        x, y = self.clients.training(job.client)
        result = run_epochs(self._model, x, y, self.order_of(job), self.draws_of(job), job.epochs)
        self._model.store(weights, velocity)
        return result.checked(weights)
