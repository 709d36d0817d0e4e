"""FedRank (ICML 2024): imitation of experts, then online ranking of the probed devices."""
