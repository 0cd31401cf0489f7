"""One profile per TensorRT-LLM release, as data."""
