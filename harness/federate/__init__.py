"""Federated rounds on the bench: the emulator's selectors and aggregation, real devices under their meters.

``settings`` is what people write beside a scenario, ``suitable`` what of a scenario a bench can do;
``participant`` takes one device through its part of a round, ``server`` lets them begin together and decides,
``bench_round`` runs one round, ``federation`` one round after the other, ``run`` stores and resumes it all.
"""
