"""What several readers need: opening files, telling time, parsing SQL, JSON and pickles, making traces.

No format of a data set is known here; each has a file of its own in `traces.readers`.
"""
