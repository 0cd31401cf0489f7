"""In 16 bit the size of a pass shows in the logits; a target's are those of plain decoding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from causal_lm import CausalModel, Dtype, load_model
from reference_pairs import VOCAB_SIZE, write_model
from session_pool import SessionPool
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "initializer_range": 0.1,
}
PROMPT = [(31 * i) % VOCAB_SIZE for i in range(40)]
REST = [(57 * i + 3) % VOCAB_SIZE for i in range(16)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Targets with enough layers for a rounding to grow."""
    root = tmp_path_factory.mktemp("targets")
    torch.manual_seed(3)
    models = {
        "llama": LlamaForCausalLM(LlamaConfig(**SIZES)),
        "sliding": MistralForCausalLM(MistralConfig(**SIZES, sliding_window=48)),
    }
    return {name: write_model(model, root / name) for name, model in models.items()}


@pytest.fixture
def uneven_products() -> Iterator[None]:
    """Matrix products that round several rows otherwise than one."""

    def nudge(
        module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor
    ) -> torch.Tensor | None:
        several = isinstance(module, torch.nn.Linear) and inputs[0].shape[-2] > 1
        return output * 1.01 if several else None

    hook = torch.nn.modules.module.register_module_forward_hook(
        nudge  # type: ignore[arg-type] # torch declares no result, and takes one
    )
    yield
    hook.remove()


def read_alone(model: CausalModel) -> torch.Tensor:
    """Plain decoding: the prompt in one pass, then each token in one."""
    session = model.session()
    rows = [session.advance(PROMPT, keep=1)]
    return torch.cat([*rows, *(session.advance([token], keep=1) for token in REST)])


def read_in_steps(model: CausalModel, size: int) -> torch.Tensor:
    """Verification: the prompt with the first drafts, then as many at a time."""
    session = model.session()
    rows = [session.advance([*PROMPT, *REST[:size]], keep=size + 1)]
    rest = [REST[i : i + size] for i in range(size, len(REST), size)]
    return torch.cat([*rows, *(session.advance(ids, keep=len(ids)) for ids in rest)])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["llama", "sliding"])
def test_tokens_read_together_get_the_bits_that_they_get_alone(
    folders: dict[str, Path], name: str, dtype: Dtype
) -> None:
    model = load_model(folders[name], dtype=dtype)
    expected = read_alone(model)
    for size in (1, 2, 5, 9):
        assert torch.equal(read_in_steps(model, size), expected), f"{size} at a time"


def test_tokens_are_read_one_by_one_where_products_round_several_otherwise(
    folders: dict[str, Path], uneven_products: None
) -> None:
    del uneven_products
    model = load_model(folders["llama"], dtype="bf16")
    assert torch.equal(read_in_steps(model, 4), read_alone(model))


def held(pool: SessionPool, ids: list[int]) -> int:
    """Read what a request has not read; return how many tokens were held already."""
    session = pool.acquire(ids)
    count = session.length
    session.advance(ids[count:], keep=1)
    pool.release(session)
    return count


def test_in_16_bit_a_prompt_is_read_whole_and_an_answer_goes_on(folders: dict[str, Path]) -> None:
    pool = SessionPool(load_model(folders["llama"], dtype="bf16"), 1)
    assert held(pool, PROMPT) == 0
    assert held(pool, [*PROMPT, 5]) == len(PROMPT)
    assert held(pool, PROMPT) == 0
    assert held(pool, [*PROMPT, 5, 6]) == 0


def test_in_float32_only_new_tokens_are_read(folders: dict[str, Path]) -> None:
    pool = SessionPool(load_model(folders["llama"], dtype="fp32"), 1)
    assert held(pool, PROMPT) == 0
    assert held(pool, PROMPT) == len(PROMPT) - 1
    assert held(pool, [*PROMPT, 5, 6]) == len(PROMPT)
