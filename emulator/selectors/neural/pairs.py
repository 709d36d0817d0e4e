"""Pairwise ranking losses over devices (RankNet, Burges et al. 2005), with their slopes written out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1.0), x.dtype)


def rank_loss(
    score: Array, goal: Array, chosen: NDArray[np.bool_], *, every_pair: bool
) -> tuple[float, Array]:
    """Equations (3) and (4) of the FedRank paper: pair probabilities against those of a target.

    Cross-entropy between P_ij = s(f_i - f_j) and its target s(g_i - g_j), as the mean over pairs.

    Args:
        score: f, one per device.
        goal: g, constant.
        chosen: Which devices were chosen.
        every_pair: All pairs, instead of those of one chosen and one that was not.

    Returns:
        The loss and its slope at every score; zero where the probabilities agree.
    """
    first = np.arange(len(score)) if every_pair else np.flatnonzero(chosen)
    second = np.arange(len(score)) if every_pair else np.flatnonzero(~chosen)
    difference = score[first, None] - score[None, second]
    aim = sigmoid(goal[first, None] - goal[None, second])
    # -aim log s(d) - (1 - aim) log s(-d) = log(1 + exp(d)) - aim d
    losses = np.logaddexp(np.float32(0), difference) - aim * difference
    pull = sigmoid(difference) - aim
    pairs = losses.size
    if every_pair:
        np.fill_diagonal(losses, 0.0)
        pairs -= len(score)
    slope = np.zeros_like(score)
    if pairs == 0:
        return 0.0, slope
    np.add.at(slope, first, pull.sum(axis=1) / pairs)
    np.subtract.at(slope, second, pull.sum(axis=0) / pairs)
    return float(losses.sum()) / pairs, slope


def imitation_loss(score: Array, expert: NDArray[np.bool_], *, pairwise: bool) -> tuple[float, Array]:
    """How far scores are from what an expert chose, and the slope at every score.

    Args:
        score: One per device.
        expert: The expert's choice.
        pairwise: The mean over (chosen, not chosen) pairs of log(1 + exp(f_j - f_i)) instead of each device's
            own cross-entropy, in which the few that were chosen weigh as much as all the others.
    """
    chosen = int(expert.sum())
    others = len(score) - chosen
    if chosen == 0 or others == 0:
        return 0.0, np.zeros_like(score)
    if pairwise:
        certain = np.where(expert, np.float32(50), np.float32(-50))
        return rank_loss(score, certain, expert, every_pair=False)
    weight = np.where(expert, np.float32(others / chosen), np.float32(1))
    losses = np.logaddexp(np.float32(0), np.where(expert, -score, score))
    slope = weight * (sigmoid(score) - expert) / len(score)
    return float((weight * losses).mean()), slope.astype(score.dtype)
