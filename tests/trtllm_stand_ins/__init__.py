"""Programs that stand in for TensorRT-LLM's: strict about options, faithful about files."""
