"""Many jobs in one run: independent ones (``bench_run/``), or those of a round at the same time (``round``).

``session`` opens, resumes and describes a run of any kind; ``server`` lets the devices of a round begin
together and says who goes on; ``record`` is what is stored of a round, ``measured`` what its parts took.
"""
