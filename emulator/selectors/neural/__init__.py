"""What the learning selectors share: a small network, its optimiser, and value decomposition over devices."""
