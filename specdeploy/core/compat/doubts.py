"""What speaks against a planned pair before its tokenizers are at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdeploy.core.compat.models import check_models
from specdeploy.core.compat.question import Member, PairQuestion
from specdeploy.core.hardware import GpuSpec
from specdeploy.core.models import ModelSpec

# Sizes of one family are padded differently: Qwen2.5 has 151,936 and 152,064 rows.
_PADDING_ROWS: Final = 512


def doubts_of(target: Member, draft: Member | None, gpu: GpuSpec) -> Iterator[str]:
    """Yield what `specdeploy check` would refuse or warn of, as far as shapes and the GPU tell.

    Args:
        target: The target, in the precision that is planned.
        draft: The draft model, in its own.
        gpu: The GPU that is planned for.
    """
    question = PairQuestion(target=target, draft=draft, gpu=gpu)
    yield from (found.message for found in check_models(question))
    if question.whole_draft is not None:
        yield from _vocabularies(target.model, question.whole_draft.model)


def _vocabularies(target: ModelSpec, draft: ModelSpec) -> Iterator[str]:
    if abs(target.vocab_size - draft.vocab_size) > _PADDING_ROWS:
        yield (
            f"the draft has {draft.vocab_size:,} token ids and the target {target.vocab_size:,}: "
            "they seem to have different tokenizers"
        )
