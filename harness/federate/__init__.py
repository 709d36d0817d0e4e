"""Federated rounds on the bench: the emulator's selectors and aggregation, real devices under their meters.

``settings`` is what people write beside a scenario, ``suitable`` what of a scenario a bench can do, ``setup``
who and what takes part. ``participant`` takes one device through its part of a round, ``federation`` plays
one round after the other, ``run`` stores and resumes them.
"""
