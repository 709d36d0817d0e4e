"""What a job trains: the work order for the agent and the bytes it names, made once per run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from device_agents import BlobRef, Job
from harness.bench.matrix import BenchJob, Cell
from harness.bench.plan import Plan
from harness.inventory import DeviceLimits
from joulefleet.errors import ConfigError, MissingExtra
from joulefleet.files import cache_folder
from joulefleet.install_hint import install_hint
from joulefleet.seeds import generator, torch_seed

if TYPE_CHECKING:
    from device_agents.workloads import Task


@dataclass(frozen=True, slots=True)
class Workload:
    """A model ready to be trained on a device.

    Attributes:
        dataset: The data set that the task is named for.
        batch_size: Samples per step.
        model: The weights to start from, packed.
        graphs: ONNX training steps by batch size, for onnxruntime.
        shard: Training data, packed; without it the device makes random samples of the right shape.
        task: A task of the user's own, packed, with its file where torch is to run it.
    """

    dataset: str
    batch_size: int
    model: bytes
    graphs: dict[int, bytes]
    shard: bytes | None = None
    task: bytes | None = None

    def blobs(self) -> dict[str, bytes]:
        """By the names that the wire uses."""
        data = {name: data for name in ("shard", "task") if (data := getattr(self, name)) is not None}
        return {"model": self.model, **data, **{f"graph-{n}": step for n, step in self.graphs.items()}}


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one device trains in a job.

    Attributes:
        work: Weights, data and step.
        samples: Training samples on the device.
        changes: Fields of its work order that are not as the plan has them.
    """

    work: Workload
    samples: int
    changes: Mapping[str, object] = field(default_factory=dict)


class Workloads:
    """Everything that the jobs of a plan train.

    Args:
        plan: Samples, batch size and seed.
        cells: What is needed. Exporting takes seconds per graph, so it is done before any meter runs.
        cache: Folder of exported graphs; by default the user's.
    """

    def __init__(self, plan: Plan, cells: Iterable[Cell], cache: Path | None = None) -> None:
        self._plan = plan
        self._cache = cache or default_cache()
        self._made: dict[tuple[str, str, int], Workload] = {}
        for cell in cells:
            key = (cell.model, cell.backend, self.samples(cell.device))
            if key not in self._made:
                self._made[key] = self._make(*key)

    def samples(self, device: str) -> int:
        """Training samples on a device."""
        return self._plan.device_samples.get(device, self._plan.samples)

    def of(self, cell: Cell) -> Assignment:
        """What a cell trains."""
        samples = self.samples(cell.device)
        return Assignment(self._made[cell.model, cell.backend, samples], samples)

    def _make(self, model: str, backend: str, samples: int) -> Workload:
        if model == "softmax":
            return _softmax(self._plan.batch_size)
        try:
            return self._task(model, backend, samples)
        except ImportError as error:
            raise MissingExtra(
                f"the weights of {model} are made with torch: {error}", hint=install_hint("train")
            ) from error
        except ValueError as error:
            raise ConfigError(f"{model} with {samples} samples: {error}") from error

    def _task(self, model: str, backend: str, samples: int) -> Workload:
        from device_agents import pack_arrays
        from device_agents.workloads import initial_state
        from emulator.own_code import find_task

        task = find_task(model)
        if self._plan.batch_size:
            task = replace(task, batch_size=self._plan.batch_size)
        graphs: dict[int, bytes] = {}
        if backend == "onnxruntime":
            from device_agents import GraphCache

            found = GraphCache(self._cache).shard(task, samples)
            graphs = {size: path.read_bytes() for size, path in found.items()}
        weights = pack_arrays(initial_state(task, torch_seed(self._plan.seed, "bench weights", model)))
        shard = _real_samples(task, samples, self._plan.seed) if self._plan.data == "real" else None
        return Workload(task.data_set, task.batch_size, weights, graphs, shard, own_task(task, backend))


def _softmax(batch_size: int) -> Workload:
    from device_agents import pack_arrays
    from device_agents.workloads import Softmax

    model = Softmax()
    return Workload(
        "synthetic", batch_size or model.batch_size, pack_arrays({"weights": model.initial()}), {}
    )


def own_task(task: Task, backend: str) -> bytes | None:
    """What a device is told of a task that it does not know; onnxruntime runs no code of the user's."""
    from device_agents.workloads import pack_task

    return None if task.code is None else pack_task(task, with_code=backend == "torch")


def _real_samples(task: Task, samples: int, seed: int) -> bytes:
    """Training samples of the task's data set, drawn without replacement; the same on every device."""
    from device_agents import pack_arrays
    from emulator.data import load_data_set

    data = load_data_set(task.data_set)
    if samples > len(data.train):
        raise ConfigError(
            f"{task.data_set} has {len(data.train):,} training samples, the plan asks for {samples:,}",
            hint='fewer `samples`, or `data = "random"`',
        )
    drawn = generator(seed, "bench samples", task.name).choice(len(data.train), samples, replace=False)
    x, y = data.inputs(data.train.x[drawn]), data.train.y[drawn]
    return pack_arrays({"x": x.astype(task.input_dtype), "y": y.astype(task.target_dtype)})


def default_cache() -> Path:
    """Where exported graphs are kept between runs."""
    return cache_folder() / "graphs"


def agent_job(
    plan: Plan, job: BenchJob, assignment: Assignment, cpus: int | None, limits: DeviceLimits
) -> Job:
    """The work order of one bench job."""
    background, work = job.cell.load.background(cpus), assignment.work
    order = Job(
        workload=job.cell.model,
        backend=job.cell.backend,
        samples=assignment.samples,
        epochs=plan.local_epochs,
        warmup_epochs=plan.warmup_epochs,
        batch_size=plan.batch_size,
        # Another order of the data in each repetition: what is measured must not hang on one of them.
        seed=torch_seed(plan.seed, "bench data", job.repetition),
        threads=plan.threads,
        upload=True,
        quiet=plan.quiet,
        on_disconnect="stop",
        deadline_s=plan.timing.deadline_s,
        decision_timeout_s=plan.timing.decision_wait_s + 60.0,
        telemetry_hz=plan.telemetry_hz,
        sync=plan.sync if plan.sync_pattern else None,
        background=background,
        load_only_s=plan.timing.load_only_s if background is not None else 0.0,
        temperature_max_c=min(_given(plan.abort.temperature_max_c, limits.temperature_max_c), default=None),
        battery_min_level=max(_given(plan.abort.battery_min_level, limits.battery_min_level), default=None),
        model=BlobRef.of(work.model),
        graphs={size: BlobRef.of(data) for size, data in work.graphs.items()},
        shard=None if work.shard is None else BlobRef.of(work.shard),
        task=None if work.task is None else BlobRef.of(work.task),
    )
    return order.model_copy(update=dict(assignment.changes))


def _given(*limits: float | None) -> list[float]:
    return [limit for limit in limits if limit is not None]
