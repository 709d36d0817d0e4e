"""File formats, streamed: delimited text, JSON, SQL dumps, NumPy archives, pickles without running them."""
