"""Host side: a task's training step as one ONNX graph, for devices that have onnxruntime and no torch."""
