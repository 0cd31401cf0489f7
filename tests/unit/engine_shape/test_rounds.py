from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from rounds import NOTHING, Array, Proposal, RoundError, Rounds, step_seed
from stopping import AnswerText, StopRules

TEXT = [ord(c) for c in "the quick brown fox jumps over the lazy dog"]


def decode(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


class Scripted:
    """A target that says TEXT, and a draft that is right ``agree`` times before it is wrong."""

    def __init__(self, agree: int) -> None:
        self._agree = agree
        self.asked: list[int] = []
        self.verified: list[int] = []

    def propose(self, tokens: Array, k: int, step: int) -> Proposal:
        assert step == len(self.asked)
        self.asked.append(k)
        right = self._following(tokens, k)
        return Proposal([t if i < self._agree else 1 for i, t in enumerate(right)])

    def verify(self, tokens: Array, proposal: Proposal, step: int) -> list[int]:
        assert step == len(self.verified)
        self.verified.append(len(proposal.ids))
        right = self._following(tokens, len(proposal.ids) + 1)
        good = 0
        while good < len(proposal.ids) and proposal.ids[good] == right[good]:
            good += 1
        return right[: good + 1]

    def _following(self, tokens: Array, n: int) -> list[int]:
        start = len(tokens) - 1
        return [TEXT[(start + i) % len(TEXT)] for i in range(n)]


def a_round(
    models: Scripted,
    *,
    draft_length: int = 4,
    max_tokens: int = 20,
    end_ids: frozenset[int] = frozenset(),
    stop_words: tuple[str, ...] = (),
) -> Rounds:
    rules = StopRules(max_tokens, end_ids, stop_words)
    return Rounds([7], AnswerText(decode, rules), draft_length, models.propose, models.verify)


def run(rounds: Rounds) -> str:
    text = ""
    while rounds.answer.finish_reason is None:
        text += rounds.step().piece.text
    return text


@pytest.mark.parametrize("draft_length", range(9))
@pytest.mark.parametrize("agree", [0, 1, 3, 8])
def test_the_answer_is_the_targets_whatever_is_drafted(draft_length: int, agree: int) -> None:
    rounds = a_round(Scripted(agree), draft_length=draft_length)
    assert run(rounds) == decode(TEXT[:20])
    assert rounds.totals.output_tokens == 20


def test_no_more_is_drafted_than_the_answer_may_still_get() -> None:
    models = Scripted(agree=8)
    run(a_round(models, draft_length=4, max_tokens=8))
    # 5 tokens, then 3 are left: two drafted ones and the target's own.
    assert models.verified == [4, 2]


def test_draft_length_zero_asks_no_draft() -> None:
    models = Scripted(agree=8)
    rounds = a_round(models, draft_length=0, max_tokens=5)
    run(rounds)
    assert models.asked == []
    assert models.verified == [0] * 5
    assert rounds.totals.acceptance_rate == 0


def test_counts_are_over_the_whole_answer() -> None:
    rounds = a_round(Scripted(agree=2), draft_length=4, max_tokens=12)
    run(rounds)
    # Steps of 3, 3, 3, and the last with two of its three places drafted.
    totals = rounds.totals
    assert (totals.steps, totals.drafted, totals.accepted) == (4, 14, 8)
    assert totals.output_tokens == totals.accepted + totals.steps
    assert totals.acceptance_rate == pytest.approx(8 / 14)


def test_an_end_id_inside_an_accepted_run_ends_the_answer_there() -> None:
    rounds = a_round(Scripted(agree=8), draft_length=8, end_ids=frozenset({TEXT[5]}))
    # TEXT[5] is the "u" of "quick": counted, without text.
    assert run(rounds) == "the q"
    assert rounds.totals.output_tokens == 6
    assert rounds.totals.accepted == 6


def test_a_stop_word_inside_an_accepted_run_ends_the_answer_before_it() -> None:
    rounds = a_round(Scripted(agree=8), draft_length=8, stop_words=("qui",))
    assert run(rounds) == "the "
    assert rounds.totals.output_tokens == 7


@pytest.mark.parametrize("draft_length", [0, 1, 5, 8])
def test_a_stop_word_across_steps_is_found(draft_length: int) -> None:
    rounds = a_round(Scripted(agree=8), draft_length=draft_length, stop_words=("k b",))
    assert run(rounds) == "the quic"
    assert rounds.totals.output_tokens == 11


def test_a_draft_that_proposes_too_much_is_an_error() -> None:
    rounds = a_round(Scripted(agree=8), draft_length=2)
    rounds.propose = lambda *_: Proposal([1] * 3)
    with pytest.raises(RoundError, match="proposed 3 tokens; 2 were asked for"):
        rounds.step()


@pytest.mark.parametrize("answer", [[], [1] * 6])
def test_a_target_that_answers_an_impossible_count_is_an_error(answer: list[int]) -> None:
    rounds = a_round(Scripted(agree=8), draft_length=4)
    rounds.verify = lambda *_: answer
    with pytest.raises(RoundError, match=f"answered {len(answer)} tokens to 4 drafted"):
        rounds.step()


def test_a_draft_may_propose_nothing() -> None:
    models = Scripted(agree=8)
    rounds = a_round(models, draft_length=4, max_tokens=3)
    rounds.propose = lambda *_: NOTHING
    assert run(rounds) == "the"
    assert rounds.totals.drafted == 0


def test_the_models_see_prompt_and_answer_so_far() -> None:
    models = Scripted(agree=1)
    rounds = a_round(models, draft_length=3, max_tokens=6)
    seen: list[list[int]] = []

    def verify(tokens: Array, proposal: Proposal, step: int) -> list[int]:
        seen.append(tokens.tolist())
        return models.verify(tokens, proposal, step)

    rounds.verify = verify
    run(rounds)
    assert seen == [[7], [7, *TEXT[:2]], [7, *TEXT[:4]]]


def test_seeds_differ_by_request_step_and_role() -> None:
    seeds = {step_seed(r, s, role) for r in range(50) for s in range(50) for role in (0, 1)}
    assert len(seeds) == 5000
    assert all(0 <= seed < 1 << 64 for seed in seeds)
    assert step_seed((1 << 64) - 1, 3, 1) == step_seed((1 << 64) - 1, 3, 1)


def test_seeds_of_one_request_look_independent() -> None:
    bits = np.array([[step_seed(9, s, role) & 1 for s in range(4000)] for role in (0, 1)])
    agreement = float((bits[0] == bits[1]).mean())
    # Five standard deviations of a fair coin.
    assert abs(agreement - 0.5) < 5 * 0.5 / 4000**0.5
