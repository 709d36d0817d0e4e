"""Comparison of methods over paired seeds: metrics, intervals, tests, tables."""
