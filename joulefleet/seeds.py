"""Explicit randomness: one root seed, one independent stream per purpose.

A stream is named by what it is for (``"partition"``, ``("data-order", client, round)``), so a result
does not depend on how many workers there were or on who drew first.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def stream_entropy(root_seed: int, *purpose: str | int) -> int:
    """128 bits for one purpose, the same on every machine and Python."""
    if root_seed < 0:
        raise ValueError(f"root_seed must not be negative, got {root_seed}")
    # repr keeps 1 and "1" apart, and the separators keep ("a", "b") and ("a,b",) apart. numpy's integers,
    # which have a repr of their own, mean the same stream.
    parts = [part if isinstance(part, str) else int(part) for part in (root_seed, *purpose)]
    name = repr(tuple(parts)).encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:16], "big")


def generator(root_seed: int, *purpose: str | int) -> np.random.Generator:
    """An independent generator for one purpose."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(stream_entropy(root_seed, *purpose)))


def torch_seed(root_seed: int, *purpose: str | int) -> int:
    """A seed in the range ``torch.manual_seed`` takes."""
    return stream_entropy(root_seed, *purpose) & (2**63 - 1)
