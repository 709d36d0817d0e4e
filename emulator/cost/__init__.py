"""What a round costs each device: computing under load, transfers, waiting, and how far it gets."""
