"""A client in plain torch: the tasks, data sets and partitions of joulefleet, to compare runs."""

from functools import lru_cache

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from torch import nn

from device_agents.workloads import Task, batch_sizes, build
from emulator import Scenario
from emulator.runs import data_of, task_of
from emulator.training import ClientData
from joulefleet_flower.client import LocalClient


class TorchClient(LocalClient):
    """One client's data and model; see `joulefleet_flower.client.LocalClient`."""

    def __init__(self, task: Task, data: ClientData, client: int) -> None:
        self.client, self._task, self._data = client, task, data
        x, y = data.training(client)
        self._x, self._y = torch.from_numpy(x), torch.from_numpy(y)
        self.samples = len(y)
        held = data.data.train.y[data.partition.shard(client)]
        self.label_counts = np.bincount(held, minlength=task.classes).tolist()
        self._model = build(task)
        self._optimiser = torch.optim.SGD(
            self._model.parameters(), lr=task.learning_rate, momentum=task.momentum
        )

    def load(self, weights: ArrayRecord, optimiser: ArrayRecord | None = None) -> None:
        """Weights, and the momentum if there is any."""
        self._model.load_state_dict(weights.to_torch_state_dict())
        for name, velocity in (optimiser.to_torch_state_dict() if optimiser else {}).items():
            parameter = self._model.get_parameter(name)
            self._optimiser.state[parameter]["momentum_buffer"] = velocity.clone()

    def weights(self) -> ArrayRecord:
        """All parameters and buffers."""
        return ArrayRecord(self._model.state_dict())

    def optimiser_state(self) -> ArrayRecord:
        """Momentum of each parameter."""
        state = self._optimiser.state
        named = self._model.named_parameters()
        return ArrayRecord({name: state[p]["momentum_buffer"] for name, p in named if state[p]})

    def train(self, round_number: int, epochs: range, proximal_mu: float) -> np.ndarray:
        """SGD; FedProx as its objective is written down."""
        anchor = [parameter.detach().clone() for parameter in self._model.parameters()]
        first = np.empty(0, np.float32)
        for epoch in epochs:
            losses = []
            for batch in self._batches(round_number, epoch):
                self._optimiser.zero_grad()
                found = nn.functional.cross_entropy(
                    self._model(self._x[batch]), self._y[batch], reduction="none"
                )
                objective = found.mean()
                if proximal_mu:
                    pairs = zip(self._model.parameters(), anchor, strict=True)
                    objective = objective + proximal_mu / 2 * sum(((w - a) ** 2).sum() for w, a in pairs)
                objective.backward()
                self._optimiser.step()
                losses.append(found.detach().numpy())
            if epoch == epochs.start and losses:
                first = np.concatenate(losses)
        return first

    @torch.inference_mode()
    def losses(self, round_number: int, *, one_batch: bool) -> np.ndarray:
        """Of all samples, or of the first batch of the first epoch."""
        batches = self._batches(round_number, 0)
        if not batches:
            return np.empty(0, np.float32)
        rows = batches[0] if one_batch else slice(None)
        return nn.functional.cross_entropy(
            self._model(self._x[rows]), self._y[rows], reduction="none"
        ).numpy()

    @torch.inference_mode()
    def accuracy(self) -> float:
        """On held-out samples, or on all where none are."""
        x, y = self._data.scored(self.client)
        return score_of(self._model, x, y)[1] if len(y) else float("nan")

    def _batches(self, round_number: int, epoch: int) -> list[torch.Tensor]:
        order = torch.from_numpy(self._data.order(self.client, round_number, epoch))
        sizes = batch_sizes(self._task, self.samples)
        return list(order[: sum(sizes)].split(sizes)) if sizes else []


@lru_cache(maxsize=4)
def task_and_data(scenario_json: str, seed: int) -> tuple[Task, ClientData]:
    """Task and data of a scenario, loaded once in each of Flower's workers."""
    torch.set_num_threads(1)
    scenario = Scenario.model_validate_json(scenario_json)
    data, partition = data_of(scenario.task, scenario.fleet.devices, seed)
    return task_of(scenario.task), ClientData(data, partition, seed, scenario.task.held_out)


class OpenTorchClient:
    """Makes the client of a node: partition ``partition-id`` of the data of ``seed``."""

    make = TorchClient

    def __init__(self, scenario: Scenario) -> None:
        self._json = scenario.model_dump_json()

    def __call__(self, context: Context, config: ConfigRecord) -> TorchClient:
        """See `joulefleet_flower.client.OpenClient`."""
        task, data = task_and_data(self._json, config["seed"])
        return self.make(task, data, int(context.node_config["partition-id"]))


def score_of(model: nn.Module, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Mean loss and accuracy."""
    model.eval()
    labels = torch.from_numpy(y)
    with torch.inference_mode():
        logits = model(torch.from_numpy(x))
        right = (logits.argmax(1) == labels).double().mean()
        return float(nn.functional.cross_entropy(logits, labels)), float(right)
