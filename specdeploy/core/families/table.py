"""The families whose sizes follow from config.json alone, by model_type.

Defaults are those of the published configuration classes. A model type that is not listed
is planned from tensor headers or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specdeploy.core.families.dense import DENSE
from specdeploy.core.families.sparse import SPARSE
from specdeploy.core.families.style import Style

STYLES: Final[Mapping[str, Style]] = {**DENSE, **SPARSE}

# Other names of the same decoders: older spellings, and language parts of vision models.
SAME_AS: Final[Mapping[str, str]] = {
    "phi-msft": "phi",
    "kimi_k2": "deepseek_v3",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
