"""Which pairs there are to compare: tensor parallelism, placement and KV types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from specdeploy.core.kv_cache import resolve_kv_dtype
from specdeploy.core.models import ModelSpec
from specdeploy.core.precision import AUTO
from specdeploy.core.served import ServedModel, ServedPair, serve_model
from specdeploy.core.tuner.question import TENSOR_PARALLEL, Candidate, Question
from specdeploy.errors import ConfigError

NO_DRAFT: Final = Candidate("none", "none")
NO_ACCEPTANCE: Final = "no acceptance known"
LOSSY: Final = "an fp8 KV cache changes the target's numbers (allow_lossy is false)"
_FIRST_FP8_SM: Final = 89


@dataclass(frozen=True, slots=True)
class Variant:
    """One pair on its GPUs; sizes are chosen inside it.

    ``refused`` says why it is not looked into.
    """

    candidate: Candidate
    pair: ServedPair
    gpus: int
    refused: str | None = None

    @property
    def key(self) -> tuple[int, str, int, int, bool, str, str]:
        """What orders variants that are equally good: fewer GPUs first."""
        draft = self.pair.draft
        return (
            self.gpus,
            self.candidate.name,
            self.pair.target.tp,
            draft.tp if draft else 0,
            self.pair.draft_apart,
            self.pair.target.kv_dtype,
            draft.kv_dtype if draft else "",
        )


def variants(question: Question) -> list[Variant]:
    """Return every pair that fits the GPUs, the refused ones included.

    Raises:
        ConfigError: the target cannot be served so at any tensor parallelism.
    """
    plain = list(_plain(question))
    speculative = (
        variant
        for candidate in question.candidates
        if candidate.method != "none"
        for variant in _speculative(question, candidate, [v.pair.target for v in plain])
    )
    return sorted([*plain, *speculative], key=lambda variant: variant.key)


def spread(spec: ModelSpec, *, precision: str, kv_dtype: str, tp: int) -> ServedModel:
    """Return a model as it is served over ``tp`` GPUs.

    Raises:
        ConfigError: its heads cannot be spread so, or it cannot be served in that precision.
    """
    if spec.attention_heads % tp:
        raise ConfigError(
            f"{spec.attention_heads} attention heads of {spec.name} cannot be spread over tp {tp}",
            hint=f"use a tp that divides {spec.attention_heads}",
        )
    return serve_model(spec, precision=precision, kv_dtype=kv_dtype, tp=tp)


def _plain(question: Question) -> Iterator[Variant]:
    asked = question.fixed.target_tp
    errors = []
    for tp in TENSOR_PARALLEL if asked is None else (asked,):
        if tp > question.gpu_count:
            continue
        try:
            for target in _targets(question, tp):
                refused = LOSSY if _is_lossy(question, target) else None
                yield Variant(NO_DRAFT, ServedPair(target), tp, refused)
        except ConfigError as error:
            errors.append(error)
    if errors and (asked is not None or len(errors) == len(TENSOR_PARALLEL)):
        raise errors[0]


def _targets(question: Question, tp: int) -> Iterator[ServedModel]:
    for kv_dtype in _kv_dtypes(question, question.target, question.fixed.target_kv_dtype):
        yield spread(question.target, precision=question.precision, kv_dtype=kv_dtype, tp=tp)


def _kv_dtypes(question: Question, spec: ModelSpec, fixed: str | None) -> tuple[str, ...]:
    if fixed is not None:
        return (fixed,)
    own = resolve_kv_dtype(AUTO, spec)
    return (own, "fp8") if own != "fp8" and question.gpu.sm >= _FIRST_FP8_SM else (own,)


def _is_lossy(question: Question, target: ServedModel) -> bool:
    """A KV type that nobody asked for and that is not the checkpoint's own."""
    if question.allow_lossy or question.fixed.target_kv_dtype is not None:
        return False
    return target.kv_dtype != resolve_kv_dtype(AUTO, question.target)


def _speculative(
    question: Question, candidate: Candidate, targets: list[ServedModel]
) -> Iterator[Variant]:
    engine = question.shape == "engine"
    for target in targets:
        refused = LOSSY if _is_lossy(question, target) else None
        if candidate.acceptance is None:
            refused = NO_ACCEPTANCE
        for draft, apart in _drafts(question, candidate, target):
            pair = ServedPair(target, draft, candidate.method, apart, through_bls=engine)
            gpus = target.tp + (draft.tp if draft and apart else 0)
            if gpus <= question.gpu_count:
                yield Variant(candidate, pair, gpus, refused)


def _drafts(
    question: Question, candidate: Candidate, target: ServedModel
) -> Iterator[tuple[ServedModel | None, bool]]:
    """Yield how the draft can be served beside ``target``, and whether on GPUs of its own.

    One process (llmapi) splits the draft as the target, and keeps one kind of KV cache.
    """
    if candidate.spec is None:
        yield None, False
        return
    engine = question.shape == "engine"
    fixed = question.fixed.draft_tp
    widths = TENSOR_PARALLEL if fixed is None else (fixed,)
    types = _kv_dtypes(question, candidate.spec, question.fixed.draft_kv_dtype)
    for tp in widths if engine else (target.tp,):
        for kv_dtype in types if engine else (target.kv_dtype,):
            try:
                draft = spread(
                    candidate.spec, precision=candidate.precision, kv_dtype=kv_dtype, tp=tp
                )
            except ConfigError:  # the heads cannot be spread so
                continue
            if tp <= target.tp:
                yield draft, False
            if engine:
                yield draft, True
