"""Every code that a check can report: how bad it is, what it means, what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specdeploy.core.findings import FactValue, Finding, Severity
from specdeploy.core.record import Record


class CodeInfo(Record):
    """One row of the table. The first severity is the usual one."""

    severities: list[Severity]
    meaning: str
    remedy: str


def _code(severities: str, meaning: str, remedy: str) -> CodeInfo:
    return CodeInfo.model_validate(
        {"severities": severities.split(), "meaning": meaning, "remedy": remedy}
    )


CODES: Final[dict[str, CodeInfo]] = {
    # Tokens
    "tokenizer-missing": _code(
        "warning error",
        "A directory has no tokenizer files, so tokens were not compared. An error when the "
        "directory holds weights, a warning when it is only a plan (config.json).",
        "copy tokenizer.json and tokenizer_config.json into the directory",
    ),
    "tokenizer-types-differ": _code(
        "error",
        "The two tokenizers are of different kinds and their ids disagree.",
        "choose a draft that was trained with the target's tokenizer",
    ),
    "tokenizer-sizes-differ": _code(
        "error",
        "One tokenizer has ordinary tokens that the other lacks.",
        "choose a draft that was trained with the target's tokenizer",
    ),
    "tokenizer-ids-differ": _code(
        "error",
        "The same id stands for different ordinary tokens.",
        "choose a draft that was trained with the target's tokenizer",
    ),
    "tokenizer-encodings-differ": _code(
        "error",
        "The ids agree, but the two tokenizers split text into different tokens.",
        "choose a draft that was trained with the target's tokenizer",
    ),
    "tokenizer-rules-differ": _code(
        "warning",
        "Kind, normalizer or pre-tokenizer are written differently, although every probe "
        "text gives the same ids.",
        "copy the target's tokenizer.json to the draft if both were trained with it",
    ),
    "tokenizer-decoders-differ": _code(
        "info",
        "The decoders differ. Text is decoded with the target's.",
        "nothing to do",
    ),
    "tokenizer-files-disagree": _code(
        "warning",
        "tokenizer.json and tokenizer_config.json give one token two ids.",
        "save the tokenizer again, so that its files agree",
    ),
    "prompt-framing-differs": _code(
        "warning",
        "The tokenizers put different special tokens around a prompt (such as a leading BOS).",
        "the draft sees prompts framed in the target's way; expect a lower acceptance",
    ),
    "added-tokens-differ": _code(
        "error",
        "An id or a text of an added token means something else on the other side.",
        "choose a draft with the same added tokens",
    ),
    "added-tokens-renamed": _code(
        "warning",
        "A reserved token of one side has a name on the other.",
        "usable; the draft will seldom propose these tokens",
    ),
    "added-tokens-missing": _code(
        "warning",
        "One side has added tokens that the other lacks.",
        "usable; the draft will not propose these tokens",
    ),
    "added-tokens-handling-differs": _code(
        "warning",
        "The same added token is recognised differently inside a text.",
        "copy the target's tokenizer.json to the draft if both were trained with it",
    ),
    # Vocabulary rows and logits
    "ids-beyond-vocabulary": _code(
        "error",
        "A token that will be used has an id at or above the rows of a model's embedding.",
        "choose another draft, or enlarge its embedding",
    ),
    "added-ids-beyond-vocabulary": _code(
        "warning",
        "An added token has an id at or above the rows of a model's embedding; a request "
        "that holds it would fail.",
        "keep that token out of requests",
    ),
    "vocabulary-padding-differs": _code(
        "warning",
        "The tokens agree, but the embeddings are padded to different numbers of rows.",
        "usable: the reference runtime then compares tokens in sampled requests too; acceptance "
        "by probability (use_draft_logits) needs equal widths",
    ),
    "vocabulary-rows-differ": _code(
        "warning",
        "The embeddings have different numbers of rows, and without tokenizer files nobody "
        "knows whether that is padding.",
        "add the tokenizer files and check again",
    ),
    "logits-width-differs": _code(
        "error",
        "Acceptance by probability was asked for, and the logits have different widths.",
        "leave --use-draft-logits out, or pad the narrower embedding and lm_head",
    ),
    "vocabulary-padded-for-tp": _code(
        "warning",
        "The vocabulary is not divisible by tp, so rows are added.",
        "never sample the added ids; choose a tp that divides the vocabulary",
    ),
    # Special ids and chat templates
    "bos-differs": _code(
        "warning",
        "The models were trained with different BOS ids.",
        "prompts are framed in the target's way; expect a lower acceptance",
    ),
    "eos-differs": _code(
        "warning",
        "The sets of end ids differ.",
        "the target decides where an answer ends; expect rejected drafts near the end",
    ),
    "eos-missing": _code(
        "warning",
        "The target states no end id: answers run to their length limit.",
        "add eos_token_id to generation_config.json",
    ),
    "eos-list": _code(
        "info",
        "The target has several end ids. One becomes end_id, the others stop ids.",
        "nothing to do",
    ),
    "pad-missing": _code(
        "info",
        "The target has no pad id; the end id is used.",
        "nothing to do",
    ),
    "pad-differs": _code(
        "info",
        "The pad ids differ. Padding is done with the target's.",
        "nothing to do",
    ),
    "special-id-out-of-range": _code(
        "error",
        "A special id is at or above the rows of its own model's embedding.",
        "correct the id in config.json or generation_config.json",
    ),
    "chat-template-differs": _code(
        "warning",
        "The chat templates differ. Requests are written with the target's.",
        "prefer a draft that was tuned on the same chat format",
    ),
    "chat-template-missing": _code(
        "warning",
        "One side has a chat template and the other has none.",
        "prefer a draft that was tuned on the target's chat format",
    ),
    # Lengths
    "context-too-short": _code(
        "error",
        "Prompt + output + drafted tokens do not fit a model's positions.",
        "lower max_seq_len or choose a draft with a longer context",
    ),
    "draft-context-shorter": _code(
        "warning",
        "The draft has fewer positions than the target and limits every request.",
        "set max_seq_len to the usable length, or choose a draft with a longer context",
    ),
    "draft-length-zero": _code(
        "warning",
        "The draft length is 0: speculation is off.",
        "set draft_length to 1 or more, or the method to none",
    ),
    "draft-length-too-long": _code(
        "error",
        "The runtime does not draft that many tokens per step.",
        "lower draft_length",
    ),
    # Tensor parallelism
    "heads-not-divisible": _code(
        "error",
        "The attention heads cannot be split over tp GPUs.",
        "use one of the listed tp values",
    ),
    "kv-heads-not-divisible": _code(
        "error",
        "Neither of KV heads and tp divides the other.",
        "use one of the listed tp values",
    ),
    "kv-heads-copied": _code(
        "info",
        "There are more GPUs than KV heads, so KV heads are copied.",
        "plan the KV cache with one KV head per GPU",
    ),
    "quantization-group-split": _code(
        "error",
        "Per-GPU width is not a multiple of the quantization group.",
        "lower tp for this model",
    ),
    # Draft heads
    "draft-is-a-head": _code(
        "error",
        "The draft is a draft head, which cannot run on its own.",
        "use the method the head was made for",
    ),
    "draft-is-not-a-head": _code(
        "error",
        "The method needs a draft head, and the draft is a whole model.",
        "use --method draft_target, or a head for this target",
    ),
    "head-kind-differs": _code(
        "error",
        "The draft head was made for another method.",
        "use the method the head was made for",
    ),
    "head-hidden-size-differs": _code(
        "error",
        "The head reads hidden states of another width than the target's.",
        "use a head that was trained for this target",
    ),
    "head-vocabulary-differs": _code(
        "error",
        "The head's vocabulary is not the target's, or its own output is larger than it.",
        "use a head that was trained for this target",
    ),
    "head-mapping-missing": _code(
        "error",
        "The head has a reduced output vocabulary and no d2t or t2d tensor to map it.",
        "export the head again with its d2t and t2d tensors",
    ),
    "head-lm-head-missing": _code(
        "error",
        "The head needs its own lm_head and has none.",
        "export the head again with its lm_head",
    ),
    "head-tensors-unseen": _code(
        "warning",
        "The head's tensors are not there, so they were not checked.",
        "check again where the weights are",
    ),
    "mtp-modules-missing": _code(
        "error",
        "Method mtp without a draft needs prediction modules in the target, and it has none.",
        "name a head with --draft, or use another method",
    ),
    # Models, runtime, hardware
    "draft-not-used": _code(
        "warning",
        "The method needs no draft; the one given is ignored.",
        "leave the draft out",
    ),
    "draft-not-smaller": _code(
        "warning",
        "The draft has as many parameters as the target or more: it cannot be faster.",
        "choose a smaller draft",
    ),
    "same-model": _code(
        "warning",
        "Target and draft are the same weights: every draft is accepted and nothing is gained.",
        "choose a smaller draft",
    ),
    "multimodal-model": _code(
        "warning",
        "A model takes images; speculation with a separate draft serves text requests only.",
        "send text requests only",
    ),
    "method-not-served": _code(
        "error",
        "The runtime cannot serve the method.",
        "use one of the listed methods",
    ),
    "precision-not-served": _code(
        "error",
        "The runtime cannot serve the precision.",
        "use one of the listed precisions",
    ),
    "gpu-precision-unsupported": _code(
        "error",
        "The GPU's architecture cannot compute in the precision.",
        "use another precision or a newer GPU",
    ),
    "rope-needs-newer-trtllm": _code(
        "error",
        "The TensorRT-LLM release does not know the model's rope scaling.",
        "use a newer TensorRT-LLM",
    ),
}


def finding(
    code: str,
    message: str,
    *,
    hint: str | None = None,
    severity: Severity | None = None,
    facts: Mapping[str, FactValue] | None = None,
    **more_facts: FactValue,
) -> Finding:
    """Return a finding with the table's severity and remedy unless others are given."""
    info = CODES[code]
    chosen = severity or info.severities[0]
    if chosen not in info.severities:
        raise ValueError(f"{code} is never {chosen}")
    return Finding(
        code=code,
        severity=chosen,
        message=message,
        hint=hint or info.remedy,
        facts={**(facts or {}), **more_facts},
    )


def findings_table() -> str:
    """Return the table as Markdown, for the documentation."""
    rows = ["| code | severity | meaning | what to do |", "|---|---|---|---|"]
    for code, info in CODES.items():
        severities = " or ".join(info.severities)
        rows.append(f"| `{code}` | {severities} | {info.meaning} | {info.remedy} |")
    return "\n".join(rows)
