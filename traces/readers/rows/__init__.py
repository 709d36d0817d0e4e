"""From the rows of a source to traces: records, times, values, channels; the same for every format."""
