"""Whatever a checkpoint's files hold: a result, or one clear error."""

from __future__ import annotations

import contextlib
import json
import struct
import tempfile
from pathlib import Path

from checkpoint_files import FACTS, LLAMA, config_of, header_of, llama_shapes, read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdeploy.core.inspection import inspect_model
from specdeploy.errors import ConfigError

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "sliding_attention", "linear_attention", "fp8"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
CONFIGS = [LLAMA, *map(config_of, FACTS)]
KEYS = sorted(
    {key for config in CONFIGS for key in config}
    | {
        "layer_types",
        "block_configs",
        "mlp_only_layers",
        "rope_parameters",
        "kv_cache_scheme",
        "medusa_num_heads",
        "full_attention_interval",
        "sliding_window_pattern",
    }
)
examples = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def read_bytes(config: bytes, weights: bytes | None = None) -> None:
    """Read a checkpoint of these bytes; only an expected error may come out."""
    with tempfile.TemporaryDirectory() as name, contextlib.suppress(ConfigError):
        (Path(name) / "config.json").write_bytes(config)
        if weights is not None:
            (Path(name) / "model.safetensors").write_bytes(weights)
        inspect_model(read(Path(name)), path=name)


@examples
@given(
    config=st.sampled_from(CONFIGS),
    changes=st.dictionaries(st.sampled_from(KEYS), values, max_size=4),
    removed=st.sets(st.sampled_from(KEYS), max_size=2),
)
def test_any_value_under_any_key_is_read_or_refused(
    config: dict[str, object], changes: dict[str, object], removed: set[str]
) -> None:
    changed = {key: value for key, value in {**config, **changes}.items() if key not in removed}
    read_bytes(json.dumps(changed).encode())


@examples
@given(content=st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_any_content_of_config_json_is_read_or_refused(content: bytes) -> None:
    read_bytes(content)


@examples
@given(
    name=st.sampled_from(sorted(llama_shapes())),
    key=st.sampled_from(["dtype", "shape", "data_offsets"]),
    value=values,
    extra=st.binary(max_size=20),
)
def test_any_entry_of_a_tensor_header_is_read_or_refused(
    name: str, key: str, value: object, extra: bytes
) -> None:
    header, size = header_of(llama_shapes())
    entry = header[name]
    assert isinstance(entry, dict)
    text = json.dumps({**header, name: {**entry, key: value}}).encode()
    weights = struct.pack("<Q", len(text)) + text + bytes(size) + extra
    read_bytes(json.dumps(LLAMA).encode(), weights)


@examples
@given(content=st.binary(max_size=80))
def test_any_content_of_a_weight_file_is_read_or_refused(content: bytes) -> None:
    read_bytes(json.dumps(LLAMA).encode(), content)
