"""The pattern of CPU bursts: the bits, their schedule, and that a trace of the load shows them."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from device_agents.job import SyncPattern
from device_agents.payload.sync_pattern import TAPS, Pattern, m_sequence, play
from device_agents.protocol import Phase
from joulefleet.errors import DeviceError
from tests.device_agents.agents import session_on, softmax


@pytest.mark.parametrize("order", sorted(TAPS))
def test_the_bits_are_a_maximum_length_sequence(order: int) -> None:
    bits = np.array(m_sequence(order))
    n = 2**order - 1
    assert len(bits) == n
    assert bits.sum() == 2 ** (order - 1)  # one more one than zeros
    signs = 2 * bits - 1
    correlation = [int(signs @ np.roll(signs, lag)) for lag in range(n)]
    assert correlation == [n] + [-1] * (n - 1)  # two-valued: what makes the peak unmistakable
    windows = {tuple(np.roll(bits, -i)[:order]) for i in range(n)}
    assert len(windows) == n  # every state but zero, once


def test_the_default_is_63_bits_of_50_ms() -> None:
    assert Pattern().duration_ns == 63 * 50_000_000
    assert Pattern().bits() == m_sequence(6)


@pytest.mark.parametrize(
    "wrong", [{"order": 2}, {"order": 11}, {"bit_ns": 10}, {"cores": 0}, {"cores": 65}, {"order": "x"}]
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"order 3 to 10|invalid literal"):
        Pattern.parse({"order": 6, "bit_ns": 50_000_000, "cores": 1, **wrong})


@pytest.mark.parametrize("cores", [1, 2])
def test_the_load_follows_the_bits(cores: int) -> None:
    """This process's CPU time, sampled while the pattern plays, correlates with the bits at the right lag."""
    pattern = Pattern(order=4, bit_ns=40_000_000, cores=cores)
    samples: list[tuple[int, float]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.004):
            samples.append((time.monotonic_ns(), time.process_time()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start_ns = time.monotonic_ns() + 100_000_000
    time.sleep(max(0.0, (start_ns - time.monotonic_ns()) * 1e-9))
    play(pattern, start_ns)
    end_ns = time.monotonic_ns()
    over.set()
    watcher.join()
    assert end_ns - start_ns >= pattern.duration_ns
    t_ns, cpu_s = np.array(samples).T
    edges_ns = start_ns + np.arange(len(pattern.bits()) + 1) * pattern.bit_ns
    per_bit_s = np.diff(np.interp(edges_ns, t_ns, cpu_s))
    signs = 2 * np.array(pattern.bits()) - 1
    scores = [float(np.roll(signs, lag) @ per_bit_s) for lag in range(len(signs))]
    assert int(np.argmax(scores)) == 0


def test_it_can_be_interrupted(tmp_path: Path) -> None:
    with session_on(tmp_path) as session, pytest.raises(DeviceError, match="deadline"):
        session.run_round(softmax(sync=SyncPattern(bit_ns=10**9, cores=2), deadline_s=0.3))
    assert [(m.kind, m.edge) for m in session.markers] == [(Phase.SYNC, "start")]
