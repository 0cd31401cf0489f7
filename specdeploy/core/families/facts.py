"""Typed, bounded access to the values of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specdeploy.errors import CheckpointError

# Old or foreign spellings of the usual keys.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("n_head_kv", "num_kv_heads", "num_key_value_heads_per_layer"),
    "intermediate_size": ("n_inner", "ffn_dim"),
    "max_position_embeddings": ("n_positions", "max_sequence_length"),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "torch_dtype": ("dtype",),
}

# Keys that pruned models give as one value per layer.
_PER_LAYER: Final = ("num_attention_heads", "num_key_value_heads", "intermediate_size")

# Keys that a multimodal config may state beside its language part.
_SHARED: Final = frozenset(
    {"tie_word_embeddings", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id"}
)

# Far above any model there is; a larger value is a broken file.
_LARGEST: Final[Mapping[str, int]] = {
    "num_hidden_layers": 1 << 14,
    "num_experts": 1 << 16,
    "num_attention_heads": 1 << 16,
    "max_position_embeddings": 1 << 36,
    "sliding_window": 1 << 36,
    "vocab_size": 1 << 28,
}
_LARGEST_SIZE: Final = 1 << 24


class ConfigFacts:
    """One model's configuration, with its family's defaults.

    A key that is absent takes the family's default; a key that is null has no value.
    ``outer`` is the enclosing config of a multimodal model, ``nested`` its language part.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        *,
        outer: Mapping[str, object] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        self._values = values
        self._outer = outer or {}
        self._defaults = defaults or {}

    def has(self, key: str) -> bool:
        """Tell whether the file states the key, null included."""
        return any(name in self._values for name in _spellings(key))

    def is_default(self, key: str) -> bool:
        """Tell whether the key's value is the family's, the file not stating one."""
        return not self.has(key) and self.get(key) is not None

    def get(self, key: str) -> object:
        """Return the raw value: the file's, else the family's default, else None."""
        for name in _spellings(key):
            if name in self._values:
                return self._values[name]
        if key in _SHARED:
            for name in _spellings(key):
                if name in self._outer:
                    return self._outer[name]
        return self._defaults.get(key)

    def whole(self, key: str, *, default: int | None = None, least: int = 1) -> int:
        """Return a whole number.

        Raises:
            CheckpointError: absent without a default, of another type, or out of bounds.
        """
        value = self.optional(key, least=least)
        if value is None:
            value = default
        if value is None:
            raise CheckpointError(f"config.json has no {key}", hint=_hint_for(key))
        return value

    def optional(self, key: str, *, least: int = 1) -> int | None:
        """Return a whole number, or None when the key is absent or null."""
        value = self.get(key)
        if value is None:
            return None
        return bounded(value, key=key, least=least)

    def flag(self, key: str) -> bool:
        """Return a truth value; absent and null count as false."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise CheckpointError(f"config.json: {key} should be true or false, not {shown(value)}")
        return bool(value)

    def text(self, key: str) -> str | None:
        """Return a string, or None when the key is absent or null."""
        value = self.get(key)
        return None if value is None else as_word(value, key=key)

    def table(self, key: str) -> Mapping[str, object] | None:
        """Return a nested object, or None when the key is absent or null."""
        return as_table(self.get(key), key=key)

    def items(self, key: str) -> list[object] | None:
        """Return a list, or None when the key is absent or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            raise CheckpointError(f"config.json: {key} should be a list, not {shown(value)}")
        return value

    def for_layer(self, index: int) -> ConfigFacts:
        """Return the view of one layer: keys that list a value per layer give that value.

        Raises:
            CheckpointError: such a list is not as long as the model is deep.
        """
        overlay: dict[str, object] = {}
        for key in _PER_LAYER:
            value = self.get(key)
            if isinstance(value, list):
                layers = self.whole("num_hidden_layers")
                if len(value) != layers:
                    raise CheckpointError(
                        f"config.json: {key} has {len(value)} entries for {layers} layers"
                    )
                overlay[key] = value[index]
        return self.with_values(overlay) if overlay else self

    def with_defaults(self, defaults: Mapping[str, object]) -> ConfigFacts:
        """Return facts whose absent keys take these values."""
        return ConfigFacts(self._values, outer=self._outer, defaults=defaults)

    def with_values(self, overlay: Mapping[str, object]) -> ConfigFacts:
        """Return facts in which some keys have other values."""
        return ConfigFacts({**self._values, **overlay}, outer=self._outer, defaults=self._defaults)


def bounded(value: object, *, key: str, least: int = 1) -> int:
    """Return ``value`` when it is a whole number a model can have for ``key``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise CheckpointError(f"config.json: {key} should be a whole number, not {shown(value)}")
    most = _LARGEST.get(key, _LARGEST_SIZE)
    if not least <= value <= most:
        raise CheckpointError(f"config.json: {key} is {shown(value)}; expected {least} to {most}")
    return value


def as_number(value: object, *, key: str, most: float) -> float:
    """Return a number above 0 and at most ``most``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise CheckpointError(
            f"config.json: {key} should be a number up to {most:g}, not {shown(value)}"
        )
    return float(value)


def as_word(value: object, *, key: str) -> str:
    """Return a text that may be shown: no line breaks, no terminal controls."""
    if not isinstance(value, str) or not value.isprintable():
        raise CheckpointError(f"config.json: {key} should be a name, not {shown(value)}")
    return value


def as_table(value: object, *, key: str) -> Mapping[str, object] | None:
    """Return a JSON object, or None for null."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise CheckpointError(f"config.json: {key} should be an object, not {shown(value)}")
    return {str(name): item for name, item in value.items()}


def shown(value: object) -> str:
    """Return a value as an error quotes it: short, whatever a broken file holds."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.60}"


def _spellings(key: str) -> tuple[str, ...]:
    return (key, *ALIASES.get(key, ()))


def _hint_for(key: str) -> str:
    others = ALIASES.get(key)
    return f"also looked for {', '.join(others)}" if others else "the file may be incomplete"
