"""`emulator.fleet.hashed` in plain Python integers, one number at a time."""

from __future__ import annotations

from statistics import NormalDist

from joulefleet.seeds import stream_entropy

MASK = 2**64 - 1


def key(seed: int, *purpose: str | int) -> int:
    return stream_entropy(seed, *purpose) & MASK


def mixed(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def hashed(state: int, *names: int) -> int:
    for name in names:
        state = mixed(state ^ mixed(((int(name) & MASK) + 0x9E3779B97F4A7C15) & MASK))
    return state


def uniform(state: int, *names: int) -> float:
    return (hashed(state, *names) >> 11) * 2.0**-53 + 2.0**-54


def normal(state: int, *names: int) -> float:
    return NormalDist().inv_cdf(uniform(state, *names))
