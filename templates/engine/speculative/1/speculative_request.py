"""What one request asks of the ``speculative`` model, checked before any model is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fields import (
    GREEDY,
    Fields,
    InputError,
    Sampling,
    SamplingNames,
    read_sampling,
    refuse_unsupported,
)

HONOURED: Final = frozenset(
    {
        "text_input", "max_tokens", "stop_words", "end_id", "pad_id", "top_k", "top_p",
        "temperature", "random_seed", "stream", "num_draft_tokens", "use_draft_logits",
        "exclude_input_in_output", "return_perf_metrics",
    }
)  # fmt: skip

# What these ask for with any other value has no place in the rounds.
NEUTRAL: Final[dict[str, tuple[float, ...]]] = {
    "length_penalty": (0.0, 1.0),
    "repetition_penalty": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "min_length": (0, 1),
    "beam_width": (1,),
    "num_return_sequences": (1,),
    "return_log_probs": (0,),
    "return_context_logits": (0,),
    "return_generation_logits": (0,),
}


@dataclass(frozen=True)
class Settings:
    """What the deployment decided: config.pbtxt's parameters.

    Attributes:
        draft_length: Used when a request does not say.
        max_draft_length: The most a request may ask for.
        use_draft_logits: Used when a sampled request does not say; exact either way.
        end_ids: End ids of the target.
        sampling: Used when a request does not say.
    """

    draft_length: int
    max_draft_length: int
    use_draft_logits: bool = True
    end_ids: frozenset[int] = frozenset()
    sampling: Sampling = GREEDY


@dataclass(frozen=True)
class GenerationRequest:
    """One request, every default filled in."""

    text: str
    max_tokens: int
    draft_length: int
    sampling: Sampling
    end_ids: frozenset[int]
    stop_words: tuple[str, ...]
    stream: bool
    use_draft_logits: bool
    echo: bool
    perf_metrics: bool


def read_request(fields: Fields, settings: Settings) -> GenerationRequest:
    """Check a request's tensors.

    Raises:
        InputError: names the tensor that cannot be honoured.
    """
    _refuse_bad_words(fields)
    refuse_unsupported(fields, honoured=HONOURED | {"bad_words"}, neutral=NEUTRAL)
    text = next(iter(fields.texts("text_input")), "")
    if not text:
        raise InputError("text_input is empty")
    max_tokens = fields.integer("max_tokens", 0)
    if max_tokens < 1:
        raise InputError(f"max_tokens must be at least 1, not {max_tokens}")
    sampling = read_sampling(fields, names=SamplingNames(), defaults=settings.sampling)
    return GenerationRequest(
        text=text,
        max_tokens=max_tokens,
        draft_length=_draft_length(fields, settings),
        sampling=sampling,
        end_ids=_end_ids(fields, settings),
        stop_words=tuple(fields.texts("stop_words")),
        stream=fields.flag("stream"),
        use_draft_logits=not sampling.greedy
        and fields.flag("use_draft_logits", default=settings.use_draft_logits),
        echo=not fields.flag("exclude_input_in_output", default=True),
        perf_metrics=fields.flag("return_perf_metrics"),
    )


def _refuse_bad_words(fields: Fields) -> None:
    if any(fields.texts("bad_words")):
        raise InputError("bad_words is not supported by this model; leave it out")


def _draft_length(fields: Fields, settings: Settings) -> int:
    value = fields.integer("num_draft_tokens", settings.draft_length)
    if value < 0:
        raise InputError(f"num_draft_tokens must be at least 0, not {value}")
    if value > settings.max_draft_length:
        raise InputError(
            f"num_draft_tokens is {value}; this server drafts at most {settings.max_draft_length}"
        )
    return value


def _end_ids(fields: Fields, settings: Settings) -> frozenset[int]:
    """A given id replaces the target's own; a negative one means that none ends the answer."""
    if "end_id" not in fields:
        return settings.end_ids
    end_id = fields.integer("end_id", -1)
    return frozenset({end_id}) if end_id >= 0 else frozenset()
