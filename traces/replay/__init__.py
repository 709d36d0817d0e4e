"""What a phone is doing at time t, for one trace or a fleet of millions: pure functions of time."""
