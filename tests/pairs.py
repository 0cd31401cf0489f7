"""Builders of pairs for tests: say what matters, the rest is a small Llama."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from specdeploy.adapters.tokenization import LocalTokenizers
from specdeploy.core.compat import CompatReport, Member, PairQuestion, RuntimeFacts, check_pair
from specdeploy.core.findings import Finding
from specdeploy.core.models import DraftHeadSpec, ModelSpec, SpecialIds
from specdeploy.core.tokenizers import TokenizerSpec

REFERENCE = RuntimeFacts(
    name="reference",
    methods=["none", "draft_target", "ngram"],
    precisions=["fp32", "bf16", "fp16"],
    max_draft_length=16,
)


def a_model(**changes: object) -> ModelSpec:
    """Return a model of 1,000,000 parameters unless told otherwise."""
    small: dict[str, object] = {
        "name": "small",
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "hidden_size": 256,
        "layers": 2,
        "attention_heads": 4,
        "kv_heads": 4,
        "head_dim": 64,
        "intermediate_size": 512,
        "vocab_size": 512,
        "context_length": 2048,
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "parameters": 1_000_000,
        "special_ids": SpecialIds(bos=1, eos=[2], pad=0),
    }
    return ModelSpec.model_validate({**small, **changes})


def a_head(kind: object = "eagle3", **changes: object) -> DraftHeadSpec:
    """Return a complete EAGLE-3 head of 128 output rows for the small model."""
    whole: dict[str, object] = {
        "kind": kind,
        "draft_vocab_size": 128,
        "has_embedding": False,
        "has_lm_head": True,
        "has_draft_to_target_map": True,
        "has_target_to_draft_map": True,
        "fusion_input_size": 768,
    }
    return DraftHeadSpec.model_validate({**whole, **changes})


def a_member(side: str = "target", *, model: object = None, **changes: object) -> Member:
    """Return a target of 10 M or a draft of 1 M parameters, without files."""
    size = 10_000_000 if side == "target" else 1_000_000
    fields: dict[str, object] = {"path": f"/{side}", "model": model or a_model(parameters=size)}
    return Member.model_validate({**fields, **changes})


def a_question(**changes: object) -> PairQuestion:
    """Return a question about a small pair that has no tokenizers."""
    pair: dict[str, object] = {"target": a_member("target"), "draft": a_member("draft")}
    return PairQuestion.model_validate({**pair, **changes})


def ask(**changes: object) -> CompatReport:
    """Check a small pair with some fields replaced."""
    return check_pair(a_question(**changes))


def read(tokenizer: Tokenizer, directory: Path) -> TokenizerSpec:
    """Return what the real reader makes of a tokenizer, through its file."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    spec = LocalTokenizers().read_tokenizer(directory)
    assert spec is not None
    return spec


def found(report: CompatReport, code: str) -> Finding:
    """Return the one finding with this code."""
    (finding,) = [finding for finding in report.findings if finding.code == code]
    return finding


def codes(report: CompatReport, severity: str | None = None) -> set[str]:
    """Return the codes of a report, of one severity or of all."""
    return {f.code for f in report.findings if severity in (None, f.severity)}
