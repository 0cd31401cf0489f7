"""The plainest call of a leaf model; tests replace what they are about."""

from __future__ import annotations

from typing import Final

from fields import Sampling
from leaf_request import LeafCall

CALL: Final = LeafCall(
    ids=[3],
    output_len=4,
    draft_ids=[],
    draft_logits=None,
    sampling=Sampling(),
    end_id=None,
    stop_sequences=[],
    streaming=False,
    return_logits=False,
    perf_metrics=False,
    exclude_input=True,
)
