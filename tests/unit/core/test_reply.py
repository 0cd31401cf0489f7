from __future__ import annotations

import pytest

from specdeploy.core.generation import Chunk
from specdeploy.core.reply import Reply, ReplyReader


def read(*replies: Reply) -> list[Chunk | None]:
    reader = ReplyReader("m", "p")
    reader.start(sent_s=0.0)
    return [reader.read(reply, received_s=float(n)) for n, reply in enumerate(replies, 1)]


def test_an_empty_final_reply_is_no_chunk() -> None:
    assert read(Reply(final=True)) == [None]


def test_a_final_reply_with_text_is_a_chunk() -> None:
    (chunk,) = read(Reply(text=b"x", final=True))
    assert chunk is not None
    assert chunk.text == "x"


def test_half_a_character_waits_for_its_other_half() -> None:
    chunks = read(Reply(text="é".encode()[:1]), Reply(text="é".encode()[1:]))
    assert [chunk.text for chunk in chunks if chunk] == ["", "é"]


def test_half_a_character_at_the_end_is_replaced_and_not_lost() -> None:
    (chunk,) = read(Reply(text="é".encode()[:1], final=True))
    assert chunk is not None
    assert chunk.text == "\N{REPLACEMENT CHARACTER}"


def test_half_a_character_before_an_empty_end_is_replaced_too() -> None:
    chunks = read(Reply(text="é".encode()[:1]), Reply(final=True))
    assert [chunk.text for chunk in chunks if chunk] == ["", "\N{REPLACEMENT CHARACTER}"]


def test_an_unfinished_generation_has_no_result() -> None:
    with pytest.raises(ValueError, match="has not finished"):
        ReplyReader("m", "p").result()
