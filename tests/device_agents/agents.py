"""Real agents in processes of their own, and a link that can be cut without ending them."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from device_agents.job import Job
from device_agents.session.agent_session import AgentSession
from device_agents.transport import LocalTransport
from device_agents.transport.local import LocalChannel

# A device may have another Python than the host: set this to run the tests with one.
AGENT_PYTHON = os.environ.get("JOULEFLEET_AGENT_PYTHON", sys.executable)
AGENT = (AGENT_PYTHON, "-m", "device_agents.payload.agent")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def open_agent(state: Path, *options: str, environment: dict[str, str] | None = None) -> LocalChannel:
    """An agent whose folder is ``state``."""
    return LocalTransport({**ONE_THREAD, **(environment or {})}).open(
        [*AGENT, "--state", str(state), *options]
    )


@contextmanager
def session_on(state: Path, *options: str, **more: object) -> Iterator[AgentSession]:
    """A session with a fresh agent."""
    with open_agent(state, *options) as channel:
        yield AgentSession(channel, **more)


@contextmanager
def session_with(program: str) -> Iterator[LocalChannel]:
    """A Python program in the place of an agent."""
    with LocalTransport().open([sys.executable, "-c", program]) as channel:
        yield channel


def cut(channel: LocalChannel) -> None:
    """The link dies: both directions at once. The agent lives on."""
    channel._stdin.close()
    channel._stdout.close()


def kill(channel: LocalChannel) -> None:
    """The agent dies, as by the out-of-memory killer."""
    os.kill(channel.pid, signal.SIGKILL)
    channel._process.wait()


def wait_for_exit(channel: LocalChannel, timeout_s: float = 30.0) -> int:
    """Until the agent has ended by itself."""
    return channel._process.wait(timeout=timeout_s)


def softmax(**changes: object) -> Job:
    """A small job."""
    return Job.model_validate({"workload": "softmax", "samples": 2000, "epochs": 3, "seed": 1, **changes})


def a_model(value: float = 0.01) -> bytes:
    """Weights for the softmax workload."""
    import numpy as np

    from device_agents.payload.tensors import pack_arrays

    return pack_arrays({"weights": np.full(650, value)})
