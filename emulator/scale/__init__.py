"""Beyond one machine: training and sweeps on a Ray cluster (extra ``scale``), see ``docs/scale.md``."""
