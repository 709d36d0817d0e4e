"""The training step of a task as an ONNX graph, for devices without torch."""
