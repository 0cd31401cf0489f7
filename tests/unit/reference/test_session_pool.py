from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import torch
from causal_lm import common_prefix
from hypothesis import given
from hypothesis import strategies as st
from session_pool import SessionPool


class ListSession:
    """A session that only remembers its tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        self.tokens.extend(ids)
        return torch.zeros(keep or len(ids), 1)

    def shared(self, ids: Sequence[int]) -> int:
        return common_prefix(self.tokens, ids, len(ids) - 1)

    def rewind(self, length: int) -> None:
        del self.tokens[length:]


class ListModel:
    """Makes list sessions and counts them."""

    vocab_size = 1
    context_length = 100
    end_ids: frozenset[int] = frozenset()

    def __init__(self, *, supports_rewind: bool = True) -> None:
        self.supports_rewind = supports_rewind
        self.made = 0

    def session(self) -> ListSession:
        self.made += 1
        return ListSession()


def read(pool: SessionPool, ids: list[int]) -> int:
    """Read a list of tokens as a request would; return how many were held already."""
    session = pool.acquire(ids)
    held = session.length
    session.advance(ids[held:])
    pool.release(session)
    return held


def test_a_shared_beginning_is_not_read_again() -> None:
    pool = SessionPool(ListModel(), 1)
    read(pool, [1, 2, 3, 4])
    assert read(pool, [1, 2, 9]) == 2


def test_one_token_is_always_left_to_read() -> None:
    pool = SessionPool(ListModel(), 1)
    read(pool, [1, 2, 3])
    assert read(pool, [1, 2, 3]) == 2


def test_the_longest_shared_beginning_wins() -> None:
    pool = SessionPool(ListModel(), 3)
    for ids in ([1, 2, 3, 4], [1, 2, 9, 9], [5, 5, 5]):
        read(pool, ids)
    # The second list took over the first one's session, so only its beginning is left.
    assert read(pool, [1, 2, 9, 9, 9]) == 4


def test_an_unused_slot_is_preferred_to_throwing_tokens_away() -> None:
    model = ListModel()
    pool = SessionPool(model, 2)
    read(pool, [1, 2])
    read(pool, [3, 4])
    assert model.made == 2
    assert read(pool, [1, 2, 3]) == 2


def test_the_least_recently_released_session_is_reused_first() -> None:
    pool = SessionPool(ListModel(), 2)
    for ids in ([1, 1], [2, 2], [3, 3]):
        read(pool, ids)
    assert read(pool, [2, 2, 2]) == 2
    assert read(pool, [1, 1, 1]) == 0


def test_sessions_that_cannot_rewind_are_not_reused() -> None:
    model = ListModel(supports_rewind=False)
    pool = SessionPool(model, 1)
    read(pool, [1, 2, 3])
    assert read(pool, [1, 2, 3, 4]) == 0
    assert model.made == 2


def test_no_more_sessions_than_slots_are_out_at_a_time() -> None:
    pool = SessionPool(ListModel(), 1)
    pool.acquire([1])
    with pytest.raises(TimeoutError, match="in use"):
        pool.acquire([1], timeout_s=0.01)


def test_a_waiting_request_gets_the_session_that_is_released() -> None:
    pool = SessionPool(ListModel(), 1)
    session = pool.acquire([1])
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(pool.acquire([1], timeout_s=10)))
    waiting.start()
    pool.release(session)
    waiting.join()
    assert got == [session]


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)), st.integers(0, 5))
def test_common_prefix_is_shared_and_longest(left: list[int], right: list[int], n: int) -> None:
    length = common_prefix(left, right, n)
    assert left[:length] == right[:length]
    longer = length + 1
    assert longer > min(n, len(left), len(right)) or left[:longer] != right[:longer]
