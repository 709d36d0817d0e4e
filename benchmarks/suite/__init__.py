"""Running all benchmarks, keeping their results, writing them down, comparing them with earlier ones."""
