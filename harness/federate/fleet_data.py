"""What each device trains, as bytes for the wire, and what becomes of the weights that it sends back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from device_agents.workloads import Task, batch_sizes
from emulator import Trainer
from emulator.training import LocalResults, Score, weighted_sum
from harness.bench.job.workload import Workload, default_cache, own_task
from joulefleet.errors import ConfigError, JoulefleetError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator.training import Layout, TableTrainer


@dataclass(frozen=True, slots=True)
class _Prepared:
    samples: int
    shard: bytes
    graphs: dict[int, bytes]


class FleetData:
    """The shards of all devices, made ready before any meter runs: exporting takes seconds per graph.

    Args:
        task: With the scenario's own settings.
        trainer: Whose clients' data it is.
        devices: How many.
        backend: What trains on the devices.
        cache: Folder of exported graphs; by default the user's.

    Raises:
        ConfigError: No device has enough data for one step.
    """

    def __init__(
        self, task: Task, trainer: TableTrainer, devices: int, backend: str, cache: Path | None = None
    ) -> None:
        from device_agents.workloads import initial_state

        self.task = task
        self._layout = trainer.layout
        self._own_task = own_task(task, backend)
        self._like = {name: array.dtype for name, array in initial_state(task, 0).items()}
        self._prepared = [
            _prepare(task, trainer, i, backend, cache or default_cache()) for i in range(devices)
        ]
        if not self.trainable().any():
            raise ConfigError("not a single device has any data", hint="check task.partition and its options")

    def samples(self, device: int) -> int:
        """Training samples of a device."""
        return self._prepared[device].samples

    def trainable(self) -> NDArray[np.bool_]:
        """Who has enough data for one step."""
        return np.array([bool(batch_sizes(self.task, one.samples)) for one in self._prepared])

    def model(self, row: NDArray[np.float32]) -> bytes:
        """Global weights as the devices take them."""
        from device_agents import pack_arrays

        return pack_arrays(_named(row, self._layout, self._like))

    def row(self, model: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """A device's weights as the server takes them."""
        return self._layout.row(model)

    def workload(self, device: int, model: bytes) -> Workload:
        """Everything that a device is sent."""
        mine = self._prepared[device]
        data_set = self.task.data_set
        return Workload(data_set, self.task.batch_size, model, mine.graphs, mine.shard, self._own_task)


def _prepare(task: Task, trainer: TableTrainer, device: int, backend: str, cache: Path) -> _Prepared:
    from device_agents import pack_arrays

    x, y = trainer.clients.training(device)
    shard = pack_arrays({"x": np.asarray(x, task.input_dtype), "y": np.asarray(y, task.target_dtype)})
    graphs: dict[int, bytes] = {}
    if backend == "onnxruntime" and batch_sizes(task, len(y)):
        from device_agents import GraphCache

        found = GraphCache(cache).shard(task, len(y))
        graphs = {size: path.read_bytes() for size, path in found.items()}
    return _Prepared(len(y), shard, graphs)


def _named(
    row: NDArray[np.float32], layout: Layout, dtypes: dict[str, np.dtype[Any]]
) -> dict[str, NDArray[Any]]:
    """A flat row as arrays by name; integer buffers travel as integers."""
    places = {place.name: place for place in (*layout.parameters, *layout.buffers)}
    return {
        name: row[places[name].span].reshape(places[name].shape).astype(dtype)
        for name, dtype in dtypes.items()
    }


class Uploads:
    """A `Trainer` whose results come in from elsewhere.

    Args:
        server: Makes the first model and scores all others.
        backend: What trains on the devices.
    """

    def __init__(self, server: Trainer, backend: str) -> None:
        self.implementation = f"devices ({backend})"
        self._server = server
        self._weights = server.initial()
        self._rows: dict[int, NDArray[np.float32]] = {}

    def put(self, client: int, row: NDArray[np.float32]) -> None:
        """A device's update came in."""
        self._rows[client] = row

    def initial(self) -> NDArray[np.float32]:
        """See `Trainer`."""
        return self._server.initial()

    def begin(self, round_number: int, weights: NDArray[np.float32], *, proximal_mu: float = 0.0) -> None:
        """See `Trainer`."""
        self._weights, self._rows = weights, {}

    def train(self, clients: NDArray[np.int64], epochs: NDArray[np.int64]) -> LocalResults:
        """Never asked: the bench does it."""
        raise NotImplementedError("devices train")

    def aggregate(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float32]:
        """See `Trainer`; the same sum as the emulator's."""
        order = np.argsort(clients, kind="stable")
        rows = (self._rows[client] for client in clients[order].tolist())
        return weighted_sum(rows, shares[order], len(self._weights))

    def weights(self, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Trainer`."""
        return np.stack([self._rows[client] for client in clients.tolist()])

    def end(self) -> None:
        """See `Trainer`."""
        self._rows = {}

    def loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Not known here."""
        raise JoulefleetError("agents do not run a forward pass over their data")

    def batch_loss_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Not known here."""
        raise JoulefleetError("agents do not run a forward pass over their data")

    def accuracy_of(self, weights: NDArray[np.float32], clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """Not known here."""
        raise JoulefleetError("agents do not score models")

    def evaluate(self, weights: NDArray[np.float32], split: str) -> Score:
        """See `Trainer`."""
        return self._server.evaluate(weights, split)

    def bias_of(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `Trainer`."""
        return self._server.bias_of(weights)

    def close(self) -> None:
        """See `Trainer`."""
        self._server.close()
