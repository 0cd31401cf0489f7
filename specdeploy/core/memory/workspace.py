"""What engines take beside weights and KV cache: the constants, each with its source."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from specdeploy.core.record import Record
from specdeploy.units import MIB


class Workspace(Record):
    """The constants of the formulas in ``terms``; ``NO_WORKSPACE`` has all of them at 0.

    Logs that several of them were read from: (A) NVIDIA's memory guide, Llama-2-7B FP8 on an
    H100, 8192 tokens, 2048 positions; its buffers fit a batch of 256 exactly. (B) The README of
    trtllm-bench 0.12, GPT-J-6B FP8, batch 4096, 4098 positions. (C) NVIDIA/TensorRT-LLM#1188,
    Qwen2.5-0.5B int8, batch 2048, 32768 positions, and the same with 512 tokens and batch 1.
    (D) A published log of DeepSeek-R1-Distill-Qwen-1.5B int4 with the default sizes. (E) A
    published account of Qwen2.5-7B AWQ built for 2048 and for 512 tokens.
    """

    cuda_context_bytes: int = Field(
        default=768 * MIB,
        ge=0,
        description="CUDA context and libraries, once per GPU. (A) leaves 0.75 GiB unexplained, "
        "(C) about 0.5; (B), with six optimization profiles, 3. Some tp 8 servers hold another "
        "0.5 GiB on GPU 0 for each further rank (NVIDIA/TensorRT-LLM#3058): not counted.",
    )
    scratch_bytes: int = Field(
        default=32 * MIB,
        ge=0,
        description="Matrix-product workspace of an engine: what (C) and (E) have left at 0 "
        "tokens.",
    )
    activation_value_bytes: int = Field(
        default=2,
        ge=0,
        description="Of one value of one layer's tensors, which the next layer takes over. "
        "The whole execution context then comes out 3 to 7 % high for (C), 7 % high for (D), and "
        "7 to 9 % low for (E).",
    )
    quantized_activations: float = Field(
        default=1.64,
        ge=0,
        description="Factor where activations are quantized (FP8, INT8, FP4): 16 bit and 8 bit "
        "are held side by side. From (A); (B) would need less.",
    )
    expert_copies: int = Field(
        default=8,
        ge=0,
        description="Copies of a token for the experts that it is sent to. Eight as in DeepSeek "
        "and Qwen3, high for Mixtral and gpt-oss. Unsure: no log states all sizes.",
    )
    output_row_bytes: int = Field(
        default=2,
        ge=0,
        description="16-bit logits inside the execution context, per row and vocabulary entry: "
        "without them (C) at batch 2048 and at batch 1 cannot be one formula.",
    )
    position_bytes: int = Field(
        default=24,
        ge=0,
        description="Runtime buffers per slot and position. (A), (B) and (C) agree on 6 numbers "
        "of 4 bytes to 1 %, beside the logits buffer.",
    )
    decoder_value_bytes: int = Field(
        default=23,
        ge=0,
        description="Decoder buffers per slot and vocabulary entry: (A) 23.1, (B) 22.6, (C) 19.9.",
    )
    logits_bytes: int = Field(default=4, ge=0, description="32-bit logits, as the engines keep.")
    graph_bytes: int = Field(
        default=10 * MIB,
        ge=0,
        description="One captured CUDA graph: 4 to 10 MB in NVIDIA's notes on the C++ runtime. "
        "Unsure for the PyTorch backend, where up to 200 MB were reported.",
    )
    nccl_bytes: int = Field(
        default=392 * MIB,
        ge=0,
        description="NCCL buffers of an engine on several GPUs: the value that AIConfigurator's "
        "published system files hold for tp 4 and 8 (342 MiB for tp 2).",
    )


NO_WORKSPACE: Final = Workspace.model_validate(dict.fromkeys(Workspace.model_fields, 0))
