"""The bench: what to measure, and one device's job under its meter.

``plan`` is what people write, ``matrix`` the jobs in it, ``estimate`` what they will cost, ``job/`` takes one
job through its stages, ``journal`` tells what happened. Running many jobs is the business of ``rounds``.
"""
