"""The experiments, one file each: which scenarios, methods and seeds; `sizes` holds the scenarios."""
