"""From a scenario and a seed to an engine: profiles, traces, data, trainer."""
