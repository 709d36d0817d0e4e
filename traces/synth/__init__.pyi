from traces.synth.draw.network import network_traces
from traces.synth.fit.trace_set import TraceOrigin, fit_set
from traces.synth.model import NetworkModel, UsageModel, load_model, load_network_model
from traces.synth.write import synthesise

__all__ = [
    "NetworkModel", "TraceOrigin", "UsageModel", "fit_set", "load_model", "load_network_model",
    "network_traces", "synthesise",
]  # fmt: skip
