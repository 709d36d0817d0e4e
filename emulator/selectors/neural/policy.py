"""Policy files: a small network and what it was made from, as safetensors with a manifest in the header."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from emulator.selectors.neural.mlp import Mlp
from joulefleet.budgets import parse_json
from joulefleet.config import ClosedModel
from joulefleet.errors import ConfigError, StorageError
from joulefleet.files import write_atomic

POLICY_SUFFIX = ".safetensors"
MAX_FILE_BYTES = 64 << 20


class PolicyManifest(ClosedModel):
    """Where a policy comes from, enough to make it again.

    Attributes:
        kind: The selector it is for.
        command: What made it.
        features: Columns of the state, in order.
        experts: Whom it imitates; empty for one that learnt by trying.
        seeds: Of the runs it learnt from.
        stop_seeds: Of the runs whose loss decided when the imitation stopped.
        held_out_seeds: Of the runs its recall was taken from, which decided nothing.
        scenario: Names of the scenarios it learnt on.
        data: What the training data were.
        client_epochs: Local epochs that were run for it. What an expert's own policy took stands in the
            manifest of that one.
        cpu_s: Processor seconds it took.
        results: What it reached on the held-out runs, as far as they tell: an expert without a certain choice
            has none.
    """

    kind: str
    command: str
    features: tuple[str, ...]
    experts: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    stop_seeds: tuple[int, ...] = ()
    held_out_seeds: tuple[int, ...] = ()
    scenario: str = ""
    data: str = ""
    client_epochs: int = Field(default=0, ge=0)
    cpu_s: float = Field(default=0.0, ge=0)
    results: dict[str, float] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Rounds of experts: normalised states of all candidates and what the expert chose.

    Attributes:
        states: Rounds by devices by features.
        choices: Rounds by devices.
        certain: The choices that the expert would have made whatever its random numbers; None if not known.
    """

    states: NDArray[np.float32]
    choices: NDArray[np.bool_]
    certain: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True, slots=True)
class Policy:
    """A network and what goes with it.

    Attributes:
        network: What decides.
        manifest: Where it comes from.
        demonstrations: For imitated ones: some of the rounds they learnt from.
        projection: For Favor: principal components (weights by components) and the weights they start from.
            Its network reads these components and no others.
        sha256: Of the file it was read from; None for one just made.
    """

    network: Mlp
    manifest: PolicyManifest
    demonstrations: Demonstrations | None = None
    projection: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    sha256: str | None = None


def packaged_policies() -> list[str]:
    """Names of the policies that ship with the package."""
    folder = files("emulator.policies") / "trained"
    return sorted(
        f.name.removesuffix(POLICY_SUFFIX) for f in folder.iterdir() if f.name.endswith(POLICY_SUFFIX)
    )


def any_policy(name: str) -> Policy:
    """A policy of the package by name, or a file by path.

    Raises:
        ConfigError: No policy of the package has that name.
        StorageError: There is no such file, or it is none of a policy.
    """
    if name.endswith(POLICY_SUFFIX):
        return read_policy(_file(Path(name)), name)
    if name not in packaged_policies():
        raise ConfigError(
            f"no policy called {name!r}",
            hint=f"known: {', '.join(packaged_policies())}; "
            f"or a {POLICY_SUFFIX} file of `joulefleet policy train`",
        )
    return read_policy((files("emulator.policies") / "trained" / f"{name}{POLICY_SUFFIX}").read_bytes(), name)


def _file(path: Path) -> bytes:
    if not path.is_file():
        raise StorageError(
            f"{path.absolute()}: no policy file is there",
            hint="`joulefleet policy train` makes one; a scenario names it relative to its own folder",
        )
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise StorageError(
            f"{path.absolute()}: {size >> 20} MB, a policy file has at most {MAX_FILE_BYTES >> 20}",
            hint="give a file of `joulefleet policy train`",
        )
    return path.read_bytes()


def load_policy(name: str, kind: str, features: tuple[str, ...] = ()) -> Policy:
    """A policy for one kind of selector.

    Args:
        name: As for `any_policy`.
        kind: The selector.
        features: What the selector shows its network, in order; empty if it does not matter.

    Raises:
        ConfigError: There is none, or it is for another selector or another version of it.
    """
    policy = any_policy(name)
    if policy.manifest.kind != kind:
        raise ConfigError(f"policy {name!r} is for {policy.manifest.kind}, not for {kind}")
    if features and policy.manifest.features != features:
        raise ConfigError(
            f"policy {name!r} reads other features than {kind} has now",
            hint=f"make it again with `joulefleet policy train {kind}`",
        )
    return policy


def read_policy(data: bytes, name: str) -> Policy:
    """Parse a policy file.

    Raises:
        StorageError: It is not one.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        length = int.from_bytes(data[:8], "little")
        manifest = PolicyManifest.model_validate_json(
            parse_json(data[8 : 8 + length])["__metadata__"]["manifest"]
        )
    except (SafetensorError, LookupError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise StorageError(
            f"{name}: not a policy file: {error}", hint="give a file of `joulefleet policy train`"
        ) from error
    layers = sum(key.startswith("weight") for key in arrays)
    try:
        network = Mlp(
            [arrays[f"weight{i}"] for i in range(layers)], [arrays[f"bias{i}"] for i in range(layers)]
        )
        _check_layers(network)
    except (LookupError, ValueError) as error:
        raise StorageError(f"{name}: its layers do not fit each other: {error}") from error
    demos = None
    if "demo_states" in arrays:
        demos = Demonstrations(arrays["demo_states"].astype(np.float32), arrays["demo_choices"].astype(bool))
    projection = (arrays["basis"], arrays["center"]) if {"basis", "center"} <= set(arrays) else None
    return Policy(network, manifest, demos, projection, hashlib.sha256(data).hexdigest())


def _check_layers(network: Mlp) -> None:
    shapes = [weight.shape for weight in network.weights]
    if not shapes or any(len(shape) != 2 for shape in shapes):
        raise ValueError(f"weights of the shapes {shapes}")
    chained = all(first[1] == second[0] for first, second in pairwise(shapes))
    fitting = all(b.shape == (s[1],) for b, s in zip(network.biases, shapes, strict=True))
    if (
        not chained
        or not fitting
        or any(array.dtype.kind != "f" for array in network.weights + network.biases)
    ):
        raise ValueError(f"weights of the shapes {shapes}")


def write_policy(path: Path, policy: Policy) -> None:
    """Store a policy; the same policy gives the same bytes."""
    from safetensors.numpy import save

    arrays: dict[str, NDArray[Any]] = dict(policy.network.state_dict())
    if policy.demonstrations is not None:
        # Normalised to within 3: half precision keeps them to a thousandth.
        arrays["demo_states"] = policy.demonstrations.states.astype(np.float16)
        arrays["demo_choices"] = policy.demonstrations.choices
    if policy.projection is not None:
        arrays["basis"], arrays["center"] = policy.projection
    data = save(arrays, {"manifest": policy.manifest.model_dump_json()})
    if len(data) > MAX_FILE_BYTES:  # nobody could read it
        raise ConfigError(
            f"{path}: the policy takes {len(data) >> 20} MB, files may have {MAX_FILE_BYTES >> 20}",
            hint="train it on a smaller fleet: what Favor keeps grows with the devices and the model",
        )
    write_atomic(path, data)
