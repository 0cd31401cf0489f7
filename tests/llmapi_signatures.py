"""The LLM API's classes by release, as strict as the real ones: unknown keys are refused.

The names of ``tests/data/llmapi_signatures.json`` were read in NVIDIA's pages of each release;
``read_in`` tells that a class is of another one, ``complete`` false that its end was not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

DATA = Path(__file__).parent / "data" / "llmapi_signatures.json"
SECTIONS = {"kv_cache_config": "KvCacheConfig", "cuda_graph_config": "CudaGraphConfig"}
# What a class that was read in part may have: the keys of the last one that was read whole.
WHOLE = "1.2.0"


@cache
def signatures() -> dict[str, Any]:
    """Return the recorded classes by version."""
    content: dict[str, Any] = json.loads(DATA.read_text())
    return content


def keys_of(version: str, name: str) -> set[str]:
    """Return the keys that a class takes, aliases included."""
    entry = signatures()[version]["classes"][name]
    keys = {*entry["keys"], *entry.get("aliases", {}).values()}
    return keys if entry.get("complete", True) else keys | keys_of(WHOLE, name)


def strict(name: str, keys: set[str]) -> type[BaseModel]:
    """Return a class that takes these keys with any value, and no other key."""
    fields: dict[str, Any] = dict.fromkeys(keys, (Any, None))
    config = ConfigDict(extra="forbid", protected_namespaces=())
    model: type[BaseModel] = create_model(name, __config__=config, **fields)
    return model


def accept(version: str, arguments: Mapping[str, Any]) -> None:
    """Refuse what ``LLM`` of a release would refuse.

    Raises:
        ValueError: an unknown argument, tag or nested key, in the words of the library or of
            pydantic.
    """
    for key in arguments:
        if key not in keys_of(version, "TorchLlmArgs"):
            raise ValueError(f"TorchLlmArgs got invalid argument: {key}")
    for section, name in SECTIONS.items():
        if section in arguments:
            strict(name, keys_of(version, name)).model_validate(arguments[section])
    if "speculative_config" in arguments:
        _accept_speculation(version, dict(arguments["speculative_config"]))


def _accept_speculation(version: str, config: dict[str, Any]) -> None:
    tag, tags = config.pop("decoding_type", None), signatures()[version]["tags"]
    if tag not in tags:
        raise ValueError(f"Invalid decoding type: {tag}")
    name = tags[tag]
    keys = keys_of(version, name) | keys_of(version, "DecodingBaseConfig")
    strict(name, keys).model_validate(config)
    if name == "NGramDecodingConfig" and not config.get("max_matching_ngram_size"):
        raise ValueError("max_matching_ngram_size must be > 0")
    if name != "AutoDecodingConfig" and not config.get("max_draft_len"):
        raise ValueError("max_draft_len must be > 0")
    _accept_schedule(version, config)


def _accept_schedule(version: str, config: dict[str, Any]) -> None:
    schedule = config.get("draft_len_schedule")
    if schedule is None:
        return
    first = min(schedule)
    if not all(isinstance(key, int) for key in schedule):
        raise ValueError("draft_len_schedule keys must be integers")
    if version == WHOLE and first != 1:
        raise ValueError("draft_len_schedule must include key 1")
    if schedule[first] != config["max_draft_len"]:
        raise ValueError("the smallest key of draft_len_schedule must map to max_draft_len")
