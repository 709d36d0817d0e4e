"""Wire formats: pure functions and state machines from bytes to samples, no input or output."""
