"""Offline HTML pages: one file, no network, the chart library inlined once."""
