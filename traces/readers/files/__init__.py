"""File formats, streamed: delimited text, JSON, SQL dumps, pickles without running them."""
