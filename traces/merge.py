"""Usage and throughput as one set on disk: what `traces.replay.paired` looks up, written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from joulefleet.provenance import Origin, Provenance, combine
from traces.model import InteractionTrace, Throughput
from traces.replay import flags as packed
from traces.replay.flat import FlatTraces, flatten
from traces.replay.flat_store import RecordedFacts, open_recorded
from traces.replay.paired import LinkKind, NetworkPools, PairedNetwork, link_kinds, pair
from traces.storage.trace_set import TraceSet, new_trace_set
from traces.synth.draw.network import network_traces
from traces.synth.model import load_network_model

SYNTHETIC = "synthetic"


def network_recordings(source: str) -> RecordedFacts:
    """Recordings of throughput: a trace set, its flat form, or the generated ones (``synthetic``).

    Raises:
        DataQualityError: A recording has errors.
        StorageError: There is none.
    """
    if source != SYNTHETIC:
        return open_recorded(Path(source))
    model = load_network_model()
    made = Provenance(origin=Origin.EMULATED, basis=f"synthetic: network model {model.name}")
    return RecordedFacts(flatten(network_traces(model)), made, model.sha256())


def merge_traces(
    usage: TraceSet,
    network: RecordedFacts,
    out: Path | str,
    *,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> TraceSet:
    """Store the users of a set with throughput that is drawn for them from recordings of others.

    An emulation of the new set with ``network = "trace"`` is the one of the old set in which
    ``[fleet.network]`` names the recordings, at this seed.

    Examples:
        >>> merge_traces(TraceSet("people"), network_recordings("synthetic"), "both", seed=0)

    Raises:
        ConfigError: A user is on a kind of network of which there is no recording.
        DataQualityError: A trace has errors.
        StorageError: The folder exists already or cannot be written.
    """
    pools = NetworkPools.of(network.flat)
    with new_trace_set(Path(out)) as new:
        for number, trace in enumerate(usage, 1):
            new.add(with_throughput(trace, pools, seed))
            if on_progress is not None:
                on_progress(number)
        basis = f"throughput of {len(pools.network):,} recordings paired with {usage.path.name}, seed {seed}"
        # A flat form of an earlier version does not say where it came from.
        told = network.provenance or Provenance(origin=Origin.IMPORTED, basis="unknown recordings")
        new.describe(combine([usage.record.provenance, told], basis=basis))
    return TraceSet(out)


def with_throughput(trace: InteractionTrace, network: NetworkPools, seed: int) -> InteractionTrace:
    """A user's trace with the throughput that is drawn for that user."""
    flat = flatten([trace])
    return replace(trace, throughput=_throughput(flat, pair(flat, network, seed)))


def _throughput(flat: FlatTraces, paired: PairedNetwork) -> Throughput:
    """Readings wherever the rate may change: with the recording, and with the kind of network."""
    covered, link = packed.covered(flat.flags), link_kinds(flat.flags)
    # Nothing is read while the recorder of the usage does not run.
    edges = np.flatnonzero(np.append(True, (covered[1:] != covered[:-1]) | (link[1:] != link[:-1])))
    t_ns, end_ns = np.asarray(flat.state.t_ns), int(flat.span_ns[0])
    times, down, up = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0)]
    for step, until_ns in zip(edges.tolist(), [*t_ns[edges[1:]].tolist(), end_ns], strict=True):
        begin_ns, kind = int(t_ns[step]), LinkKind(int(link[step]))
        if not covered[step] or begin_ns >= until_ns:
            continue
        if kind is LinkKind.NOTHING:
            found = [(np.array([begin_ns]), (np.zeros(1), np.zeros(1)))]
        else:
            found = list(paired.changes(0, kind, begin_ns, until_ns))
        times += [at_ns for at_ns, _ in found]
        down += [rates[0] for _, rates in found]
        up += [rates[1] for _, rates in found]
    start_ns = int(flat.start_ns[0])
    return Throughput(np.concatenate(times) + start_ns, np.concatenate(down), np.concatenate(up))
