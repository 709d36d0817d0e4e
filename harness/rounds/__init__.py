"""Many jobs in one run: those of a round at the same time (``round``); what opens and resumes runs.

``session`` opens, resumes and describes a run of any kind; ``server`` lets the devices of a round begin
together and says who goes on; ``record`` is what is stored of a round, ``measured`` what its parts took.
"""
