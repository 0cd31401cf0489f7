from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeploy.core.tensor_bytes import decode_tensor, encode_tensor

RANGES = {"INT32": (-(2**31), 2**31 - 1), "UINT64": (0, 2**64 - 1), "UINT8": (0, 255)}


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_texts_survive_encoding(texts: list[bytes]) -> None:
    assert decode_tensor("BYTES", encode_tensor("BYTES", texts)) == texts


@pytest.mark.parametrize("datatype", RANGES)
@given(data=st.data())
def test_integers_survive_encoding(datatype: str, data: st.DataObject) -> None:
    low, high = RANGES[datatype]
    values = data.draw(st.lists(st.integers(low, high), max_size=5))
    assert decode_tensor(datatype, encode_tensor(datatype, values)) == values


def test_elements_are_little_endian_with_a_length_before_each_text() -> None:
    assert encode_tensor("INT32", [1]) == b"\x01\0\0\0"
    assert encode_tensor("BYTES", [b"ab", b""]) == b"\x02\0\0\0ab\0\0\0\0"


def test_no_bytes_are_no_values() -> None:
    assert decode_tensor("FP32", b"") == decode_tensor("BYTES", b"") == []


@pytest.mark.parametrize(
    ("datatype", "raw"), [("INT32", b"\0\0"), ("BYTES", b"\x05\0\0\0ab"), ("BYTES", b"\x01")]
)
def test_bytes_that_end_within_an_element_are_refused(datatype: str, raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"element"):
        decode_tensor(datatype, raw)


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit INT32"):
        encode_tensor("INT32", [2**31])


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="BF16 are not supported"):
        decode_tensor("BF16", b"\0\0")
