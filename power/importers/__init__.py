"""Importers: other people's files as recordings. What they import says so in its provenance."""
