"""Random numbers by name, many at once: each is a hash of whose it is, so that nobody has to draw before it.

`joulefleet.seeds` gives one generator per purpose, which is drawn from in order. Here every entry of an array
is named by integers (a device, a time) and can be asked for alone: in any order, by any worker, again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from joulefleet.seeds import stream_entropy

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)


def stream_key(root_seed: int, *purpose: str | int) -> np.uint64:
    """The beginning of the names of one purpose."""
    return np.uint64(stream_entropy(root_seed, *purpose) & (2**64 - 1))


def hashed(key: np.uint64, *names: NDArray[np.integer] | int) -> NDArray[np.uint64]:
    """64 bits for each entry of the names, which are broadcast: SplitMix64 of one after the other.

    SplitMix64 (Steele, Lea, Flood 2014) passes BigCrush on consecutive numbers, which these are.
    """
    state = np.asarray(key)
    with np.errstate(over="ignore"):  # modulo 2**64 is meant
        for name in names:
            state = _mixed(state ^ _mixed(np.asarray(name).astype(np.int64).view(np.uint64) + _STEP))
    return state


def uniforms(key: np.uint64, *names: NDArray[np.integer] | int) -> NDArray[np.float64]:
    """Numbers between 0 and 1, neither of them reached."""
    return (hashed(key, *names) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def normals(key: np.uint64, *names: NDArray[np.integer] | int) -> NDArray[np.float64]:
    """Standard normal numbers."""
    from scipy.special import ndtri  # not at the top: it takes a tenth of a second

    return np.asarray(ndtri(uniforms(key, *names)))


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))
