"""Trace sets on disk: Parquet tables with a manifest, and their export as CSV."""
