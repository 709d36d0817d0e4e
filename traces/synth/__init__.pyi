from traces.synth.fit.trace_set import TraceOrigin, fit_set
from traces.synth.model import UsageModel, load_model
from traces.synth.write import synthesise

__all__ = ["TraceOrigin", "UsageModel", "fit_set", "load_model", "synthesise"]
