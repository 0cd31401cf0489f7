"""Deploy large language models with speculative decoding on TensorRT-LLM and Triton."""

__version__ = "0.1.0"

__all__ = ["__version__"]
