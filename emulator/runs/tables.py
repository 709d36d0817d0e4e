"""The run log: ``rounds`` (one row per round), ``clients`` (one row per participant), ``overhead``.

What a round took of the server's own time depends on the machine, so it has a table of its own: the other
two are the same, bit by bit, whenever and wherever the run is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.batteries import LEVELS
from emulator.fleet.motion import MOTION
from emulator.round.outcome import COSTS, Accounting, Fate, RoundOutcome
from emulator.runs.replay.devices import DEVICES, devices_schema
from joulefleet.errors import StorageError
from joulefleet.files import new_file
from joulefleet.provenance import Origin
from joulefleet.runstore import Run, TableWriter, iter_batches, read_table
from joulefleet.runstore.columns import Columns
from joulefleet.runstore.table import PARQUET_SUFFIX, STREAM_SUFFIX, table_path

if TYPE_CHECKING:
    import pyarrow as pa

METRIC_PREFIX = "selector_"
"""Prefix of the columns that a selector adds to ``rounds``."""
_SHARES = ("accuracy", "test_accuracy")
N_UNKNOWN = "n_unknown"
"""Participants of a round on a bench of whom not every cost is known; without the column, nobody."""
KNOWN_COSTS = {
    f"{what}_{a.value}": f"known_{what}_{a.value}" for what in ("time_s", "energy_j") for a in Accounting
}
"""Costs of a round to the columns of what is known of them."""


def rounds_schema(metrics: Sequence[str], *, metric: str = "accuracy", on_bench: bool = False) -> pa.Schema:
    """One row per round; round 0 is what a method does once before the first.

    Where a task is not judged by its accuracy, ``metric`` says by what, and the three columns have that name.

    On a bench the cost of a participant may be unknown. Then those of the round are null, ``n_unknown`` says
    of how many, and what is known of them, a lower bound, has columns of its own.
    """
    import pyarrow as pa

    counts = ("eligible", "candidates", "chosen", *(f"n_{fate.value}" for fate in Fate))
    bounds = (N_UNKNOWN, *KNOWN_COSTS.values()) if on_bench else ()
    motion = () if on_bench else MOTION
    levels = () if on_bench else LEVELS
    return pa.schema(
        [
            ("round", pa.int32()),
            ("start_ns", pa.int64()),
            ("duration_ns", pa.int64()),
            ("idle_ns", pa.int64()),
            *((name, pa.int32()) for name in counts),
            *((f"time_s_{accounting.value}", pa.float64()) for accounting in Accounting),
            *((f"energy_j_{accounting.value}", pa.float64()) for accounting in Accounting),
            ("wait_j", pa.float64()),
            ("energy_j", pa.float64()),
            ("loss", pa.float64()),
            (metric, pa.float64()),
            (f"{metric}_gain", pa.float64()),
            ("reward", pa.float64()),
            (f"test_{metric}", pa.float64()),
            ("cost_origin", pa.string()),
            ("training", pa.string()),
            *((name, pa.int32() if name == N_UNKNOWN else pa.float64()) for name in bounds),
            *((name, pa.int32()) for name in motion),
            *((name, pa.float64()) for name in levels),
            *((METRIC_PREFIX + name, pa.float64()) for name in metrics),
        ]
    )


def clients_schema() -> pa.Schema:
    """One row per participant and round."""
    import pyarrow as pa

    return pa.schema(
        [
            ("round", pa.int32()),
            ("device", pa.int64()),
            ("chosen", pa.bool_()),
            ("fate", pa.string()),
            ("loss", pa.float64()),
            ("loss_rms", pa.float64()),
            *((name, pa.float64()) for name in (*COSTS, "loaded_s")),
        ]
    )


def overhead_schema() -> pa.Schema:
    """What the server itself took, on the wall clock of the machine that emulated it."""
    import pyarrow as pa

    return pa.schema([("round", pa.int32()), ("selection_s", pa.float64())])


def log_columns(table: str) -> Columns:
    """What a reader of a table of an emulation may rely on, also in runs of before."""
    import pyarrow as pa

    if table == "overhead":
        return Columns(overhead_schema(), lowest={"round": 0, "selection_s": 0}, rising={"round": 1})
    if table == DEVICES:
        lowest = dict.fromkeys(("device", "slowness", "data_size", "classes"), 0)
        return Columns(
            devices_schema(), nulls=devices_schema().names[1:], lowest=lowest, rising={"device": 1}
        )
    if table == "clients":
        times = [name for name in (*COSTS, "loaded_s") if name.endswith("_s")]
        return Columns(
            clients_schema(),
            optional=("loaded_s",),
            nulls=(*COSTS, "loaded_s"),
            texts={"fate": [fate.value for fate in Fate]},
            lowest=dict.fromkeys(("round", "device", "loss_rms", *times), 0),
            rising={"round": 0},
        )
    costs = {f"{what}_{a.value}" for what in ("time_s", "energy_j") for a in Accounting}
    # A task may be judged by something else than accuracy, and a selector has numbers of its own.
    free = {"accuracy", "accuracy_gain", "test_accuracy", *MOTION, *LEVELS}
    named = [field for field in rounds_schema(()) if field.name not in free]
    fates = tuple(f"n_{fate.value}" for fate in Fate)
    times = [name for name in (*costs, *KNOWN_COSTS.values()) if "time_s" in name]
    whole = ("round", "start_ns", "duration_ns", "idle_ns", "chosen", *fates, N_UNKNOWN, *MOTION)
    return Columns(
        pa.schema(named),
        nulls={*costs, "wait_j", "energy_j", "reward"},
        texts={"cost_origin": [origin.value for origin in Origin]},
        # Seconds of a round of months are exact to some nanoseconds only.
        lowest={**dict.fromkeys((*whole, *times, *LEVELS, *_SHARES), 0), "idle_ns": -256},
        highest=dict.fromkeys((*LEVELS, *_SHARES), 1),
        at_most={"idle_ns": "duration_ns", "chosen": "candidates", "candidates": "eligible"},
        sums={"candidates": fates},
        rising={"round": 1, "start_ns": "duration_ns"},
        others=pa.float64(),
    )


def read_log(folder: Path, table: str) -> pa.Table:
    """``rounds``, ``clients``, ``devices`` or ``overhead`` of an emulation or a federation.

    Raises:
        StorageError: It is not there, is damaged, or has other columns.
    """
    return read_table(folder, table, log_columns(table))


class RunLog:
    """Writes outcomes to a run as they happen. Use as a context manager.

    Args:
        run: The run.
        origin: Where times and energies come from.
        training: Implementation of the trainer; ``surrogate`` says that accuracies are a formula.
        metrics: Names of the selector's own numbers.
        folder: Inside the run.
        resume_after: Keep the rounds up to this one and go on; ``None`` for a new log.
        on_bench: Whether costs may be unknown.
        untested: Whether the last round that is kept was tested only because it was the last one then.
        metric: What the task is judged by.
    """

    def __init__(
        self,
        run: Run,
        origin: Origin,
        *,
        training: str,
        metrics: Sequence[str] = (),
        folder: str = "",
        resume_after: int | None = None,
        on_bench: bool = False,
        untested: bool = False,
        metric: str = "accuracy",
    ) -> None:
        begun_before = resume_after is not None and not _has_bounds(run.subfolder(folder))
        self._on_bench = on_bench = on_bench and not begun_before
        self._origin = origin
        self._training = training
        self._metrics = tuple(metrics)
        self._metric = metric
        self._stack = ExitStack()
        schemas = {
            "clients": clients_schema(),
            "rounds": rounds_schema(self._metrics, metric=metric, on_bench=on_bench),
            "overhead": overhead_schema(),
        }
        self._tables: dict[str, TableWriter] = {}
        for name, schema in schemas.items():
            if resume_after is not None:
                cut_table(run.subfolder(folder), name, schema, resume_after, untested=untested)
            table = run.table(name, schema, folder=folder, resume=resume_after is not None)
            self._tables[name] = self._stack.enter_context(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def append(
        self,
        outcome: RoundOutcome,
        *,
        eligible: int,
        loss: float,
        test_accuracy: float,
        overhead_s: float,
        metrics: dict[str, float],
        origin: Origin | None = None,
        motion: Mapping[str, float] | None = None,
    ) -> None:
        """Store one round; the clients go first, so that a round that is there is whole.

        ``origin`` is that of this round's costs, where rounds differ: on a bench each has its instruments.
        ``motion`` is what an emulated fleet did so far (`MOTION`), and how full its batteries are (`LEVELS`).
        """
        self._tables["clients"].append(_client_rows(outcome))
        self._tables["rounds"].append(
            {
                **_round_row(outcome, self._metric),
                **(_bounds(outcome) if self._on_bench else {}),
                "eligible": [eligible],
                "loss": [loss],
                f"test_{self._metric}": [test_accuracy],
                "cost_origin": [(origin or self._origin).value],
                "training": [self._training],
                **({} if self._on_bench else _moved(motion or {})),
                **{METRIC_PREFIX + name: [float(metrics.get(name, np.nan))] for name in self._metrics},
            }
        )
        self._tables["overhead"].append({"round": [outcome.round], "selection_s": [overhead_s]})

    def sync(self) -> None:
        """Make all rounds so far survive a power cut, before something is stored that relies on them."""
        for table in self._tables.values():
            table.sync()


def _has_bounds(folder: Path) -> bool:
    """Whether a log was begun with columns for what is known; earlier versions had none."""
    try:
        return any(N_UNKNOWN in batch.schema.names for batch in iter_batches(table_path(folder, "rounds")))
    except StorageError:  # it was cut short before its first round
        return True


def _client_rows(outcome: RoundOutcome) -> pa.RecordBatch:
    import pyarrow as pa

    n = len(outcome.clients)
    code = {fate: number for number, fate in enumerate(Fate)}
    fates = np.array([code[fate] for fate in outcome.fates], np.int8)
    columns = {
        "round": np.full(n, outcome.round, np.int32),
        "device": outcome.clients,
        "chosen": outcome.chosen,
        "fate": pa.DictionaryArray.from_arrays(fates, [fate.value for fate in Fate]).dictionary_decode(),
        "loss": outcome.reports.loss,
        "loss_rms": outcome.reports.loss_rms,
        **{name: pa.array(getattr(outcome.cost, name), from_pandas=True) for name in COSTS},  # NaN is null
        "loaded_s": pa.nulls(n, pa.float64()) if outcome.loaded_s is None else outcome.loaded_s,
    }
    return pa.RecordBatch.from_arrays([pa.array(v) for v in columns.values()], schema=clients_schema())


def _round_row(outcome: RoundOutcome, metric: str) -> dict[str, list[Any]]:
    known = outcome.known_costs or outcome.costs
    honest_ns = round(known[Accounting.HONEST].time_s * 1e9)
    return {
        "round": [outcome.round],
        "start_ns": [outcome.start_ns],
        "duration_ns": [outcome.duration_ns],
        "idle_ns": [outcome.duration_ns - honest_ns],
        "candidates": [len(outcome.clients)],
        "chosen": [int(np.count_nonzero(outcome.chosen))],
        **{f"n_{fate.value}": [outcome.fates.count(fate)] for fate in Fate},
        **{f"time_s_{a.value}": [_or_null(outcome.costs[a].time_s)] for a in Accounting},
        **{f"energy_j_{a.value}": [_or_null(outcome.costs[a].energy_j)] for a in Accounting},
        "wait_j": [_or_null(float(outcome.cost.wait_j.sum()))],
        "energy_j": [_or_null(outcome.energy_j)],
        metric: [outcome.accuracy],
        f"{metric}_gain": [outcome.accuracy_gain],
        "reward": [_or_null(outcome.reward)],
    }


def _bounds(outcome: RoundOutcome) -> dict[str, list[Any]]:
    known = outcome.known_costs or outcome.costs
    return {
        N_UNKNOWN: [int(np.count_nonzero(outcome.cost.unknown))],
        **{KNOWN_COSTS[f"time_s_{a.value}"]: [known[a].time_s] for a in Accounting},
        **{KNOWN_COSTS[f"energy_j_{a.value}"]: [known[a].energy_j] for a in Accounting},
    }


def _moved(motion: Mapping[str, float]) -> dict[str, list[Any]]:
    levels = {name: [_or_null(motion.get(name, math.nan))] for name in LEVELS}
    return {name: [motion.get(name)] for name in MOTION} | levels


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else value


def has_rounds(folder: Path, last_round: int) -> bool:
    """Whether the tables hold every round up to this one: a power cut may have taken the last ones.

    Raises:
        StorageError: A table is damaged, or has other columns.
    """

    def column(table: str, name: str) -> NDArray[np.int32]:
        batches = iter_batches(_source(folder, table), log_columns(table))
        parts = [batch.column(name).to_numpy() for batch in batches]
        return np.concatenate([np.empty(0, np.int32), *parts])

    if not all(_source(folder, name).exists() for name in ("rounds", "clients", "overhead")):
        return False
    rounds, candidates = column("rounds", "round"), column("rounds", "candidates")
    clients, overhead = column("clients", "round"), column("overhead", "round")
    kept = rounds <= last_round
    first = min(rounds.min(initial=1), last_round)  # 0 if there was profiling
    expected = np.arange(first, last_round + 1)
    return (
        np.array_equal(rounds[kept], expected)
        and np.array_equal(overhead[overhead <= last_round], expected)
        and np.count_nonzero(clients <= last_round) == candidates[kept].sum()
    )


def cut_table(folder: Path, name: str, schema: pa.Schema, last_round: int, *, untested: bool = False) -> None:
    """Make a table a stream of one batch per round again, up to and with ``last_round``."""
    stream = folder / (name + STREAM_SUFFIX)
    parquet = folder / (name + PARQUET_SUFFIX)
    source = _source(folder, name)
    if last_round < 0:  # whatever is there, nothing of it is kept
        parquet.unlink(missing_ok=True)
        stream.unlink(missing_ok=True)
    if not source.exists():
        return
    with new_file(stream, replace=True) as file:
        file.write(schema.serialize())
        for batch in iter_batches(source, log_columns(name)):
            rounds = batch.column("round").to_numpy()
            starts = np.flatnonzero(np.diff(rounds, prepend=rounds[:1] - 1))
            for begin, end in zip(starts, [*starts[1:], len(rounds)], strict=True):
                if rounds[begin] <= last_round:
                    part = batch.slice(int(begin), int(end - begin))
                    if untested and name == "rounds" and rounds[begin] == last_round:
                        place = part.schema.get_field_index("test_accuracy")
                        part = part.set_column(place, part.schema.field(place), [math.nan])
                    file.write(_fitted(part, schema).serialize())
    parquet.unlink(missing_ok=True)


def _source(folder: Path, name: str) -> Path:
    parquet = folder / (name + PARQUET_SUFFIX)
    return parquet if parquet.exists() else folder / (name + STREAM_SUFFIX)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With nulls in the columns that an earlier version did not write."""
    import pyarrow as pa

    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
