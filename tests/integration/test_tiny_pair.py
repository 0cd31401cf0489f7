"""The shipped model pair is what its README says, measured again without training."""

from __future__ import annotations

import importlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parent.parent.parent
PAIR = ROOT / "examples" / "tiny-pair"
sys.path.append(str(ROOT / "scripts"))

corpus, evaluation, loops, models, report = (
    importlib.import_module(f"tiny_pair.{name}")
    for name in ("corpus", "evaluation", "loops", "models", "report")
)

MODELS = ("target", "draft", "mismatched-draft")
HELD_OUT = {path.name: path.read_text(encoding="utf-8") for path in PAIR.glob("held_out/*.txt")}


def weight_header(name: str) -> dict[str, Any]:
    with (PAIR / name / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__")
    return header


def json_file(name: str, file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PAIR / name / file).read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    recorded: dict[str, Any] = report.read_figures(PAIR)
    return recorded


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("target", 8_000_000, 15_000_000),
        ("draft", 500_000, 1_500_000),
        ("mismatched-draft", 0, 150_000),
    ],
)
def test_models_have_the_intended_sizes(
    name: str, least: int, most: int, figures: dict[str, Any]
) -> None:
    model = models.load_model(PAIR / name, torch.bfloat16)

    count = sum(weight.numel() for weight in model.parameters())

    assert least <= count <= most
    assert count == figures["models"][name]["parameters"]


def test_pair_is_small_on_disk() -> None:
    sizes = [path.stat().st_size for path in PAIR.rglob("*") if path.is_file()]
    odd = [path.stat().st_size for path in (PAIR / "mismatched-draft").iterdir()]

    assert sum(sizes) < 40_000_000
    assert sum(odd) < 300_000


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_sixteen_bits_wide(name: str) -> None:
    assert {entry["dtype"] for entry in weight_header(name).values()} == {"BF16"}
    assert json_file(name, "config.json")["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize("name", MODELS)
def test_special_tokens_agree_in_every_file(name: str) -> None:
    tokenizer = models.load_tokenizer(PAIR / name)
    fields = json_file(name, "tokenizer_config.json")
    config = json_file(name, "config.json")
    generation = json_file(name, "generation_config.json")

    for kind in ("bos", "eos", "pad"):
        number = tokenizer.token_to_id(fields[f"{kind}_token"])
        assert number == config[f"{kind}_token_id"] == generation[f"{kind}_token_id"]
    assert tokenizer.get_vocab_size() == config["vocab_size"]
    assert config["max_position_embeddings"] >= 2048
    assert generation["do_sample"] is False


def test_target_and_draft_share_one_tokenizer() -> None:
    target, draft, odd = ((PAIR / name / "tokenizer.json").read_bytes() for name in MODELS)

    assert target == draft
    assert target != odd


@pytest.mark.parametrize(
    "text", [" leading and trailing ", "tabs\t\r\n  \n", "naïve 日本語 🙂", "\x00\x7f", ""]
)
def test_tokenizer_gives_back_any_text(text: str) -> None:
    tokenizer = models.load_tokenizer(PAIR / "target")

    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_transformers_reads_the_tokenizer_files() -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(PAIR / "target")
    ids = tokenizer("def main():\n")["input_ids"]

    assert ids == models.load_tokenizer(PAIR / "target").encode("def main():\n").ids
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)


def test_target_predicts_as_well_far_into_its_context() -> None:
    model = models.load_model(PAIR / "target", torch.float32)
    tokenizer = models.load_tokenizer(PAIR / "target")
    ids = tokenizer.encode("".join(HELD_OUT[name] for name in sorted(HELD_OUT))).ids
    tokens = torch.tensor(ids[: 8 * 2048]).view(8, 2048)

    with torch.inference_mode():
        logits = model(input_ids=tokens).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), tokens[:, 1:], reduction="none"
    )

    assert losses[:, 1536:].mean() < losses[:, 64:512].mean() + 0.3


def test_the_target_accepts_the_draft_more_often_than_prompt_lookup() -> None:
    measured: dict[str, Any] = evaluation.measure(PAIR, torch.float32)

    draft = measured["draft_model"]["4"]["acceptance_rate"]
    lookup = measured["prompt_lookup"]["4"]["acceptance_rate"]

    assert draft >= 0.55
    assert lookup < draft


def test_recorded_figures_reach_the_goal_in_both_precisions(figures: dict[str, Any]) -> None:
    for precision in ("float32", "bfloat16"):
        draft = figures[precision]["draft_model"]["4"]["acceptance_rate"]
        assert draft >= 0.55
        assert figures[precision]["prompt_lookup"]["4"]["acceptance_rate"] < draft


def test_readme_shows_the_recorded_figures(figures: dict[str, Any]) -> None:
    page = (PAIR / "README.md").read_text(encoding="utf-8")

    assert page == report.with_table(page, report.figures_table(figures))


def test_no_held_out_line_is_in_the_training_files_this_machine_has() -> None:
    record = json.loads((PAIR / "corpus.json").read_text(encoding="utf-8"))
    here = corpus.read_library(corpus.library_folder())
    same = {
        name: text
        for name, text in here.items()
        if corpus.digest(text) == record["training_files"].get(name)
    }
    if record["python_version"] == sys.version.split()[0] and len(same) < 0.9 * len(
        record["training_files"]
    ):
        pytest.fail("this Python has the recorded version but other sources")

    assert len(HELD_OUT) == len(record["held_out_files"])
    assert not set(record["held_out_files"]) & set(record["training_files"])
    corpus.check_held_out(HELD_OUT, same)


def test_a_held_out_line_seen_in_training_is_reported() -> None:
    with pytest.raises(ValueError, match="line 2 occurs in the training text"):
        corpus.check_held_out({"a.py": "fresh()\n    known()\n"}, {"b.py": "known()\n"})


def test_a_repeated_run_is_marked_where_it_is_complete() -> None:
    once = list(range(loops.REPEATED))

    marked = loops.repeats([*once, *once, 99], loops.REPEATED)

    assert marked == [False] * (loops.REPEATED - 1) + [True, False]


def test_prompt_lookup_proposes_what_followed_the_longest_latest_match() -> None:
    tokens = [7, 1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3]

    assert list(evaluation.look_up(tokens, 12, 2)) == [4, 9]
    assert list(evaluation.look_up([1, 2, 3], 3, 4)) == []
    assert list(evaluation.look_up([5, 6, 5], 3, 4)) == [6, 5]


def test_tally_counts_accepted_runs_and_the_target_token_after_each() -> None:
    text = evaluation.Continuation([0, 1, 2, 3, 4, 5, 6], start=1)

    counts = evaluation.tally([text], lambda tokens, at, k: [*tokens[at : at + 1], -1, -1][:k], 3)

    assert (counts.drafted, counts.accepted, counts.steps, counts.tokens) == (8, 3, 3, 6)
