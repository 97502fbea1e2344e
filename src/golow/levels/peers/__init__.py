"""Other runtimes: ONNX Runtime, OpenVINO, TensorRT, ExecuTorch, TVM."""
