"""Computes ``power/reference/facts.json`` from published data sets; see `python -m` of this package.

The data sets themselves are not part of joulefleet: a folder with them is named by ``JOULEFLEET_DATA``.
"""
