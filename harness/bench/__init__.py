"""The bench: a plan becomes jobs, jobs run on devices while their meters record, runs survive a kill.

``plan`` is what people write, ``matrix`` the jobs in it, ``estimate`` what they will cost; ``job`` takes one
job through its stages, ``runner`` keeps all devices busy, ``journal`` tells what happened, ``resume`` takes
up a run that was stopped.
"""
