from __future__ import annotations

import numpy as np
import pytest
from fields import Fields
from leaf_request import word_lists
from word_lists import word_list


@pytest.mark.parametrize("runs", [[], [[5]], [[5, 6], [7]], [[1], [2], [3, 4, 5]]])
def test_the_leaf_reads_the_word_lists_that_preprocessing_writes(runs: list[list[int]]) -> None:
    tensor = np.array([word_list(runs)], dtype=np.int32)
    assert tensor.shape[:2] == (1, 2)
    assert word_lists(Fields({"stop_words_list": tensor}), "stop_words_list") == runs


def test_the_second_row_says_where_each_run_ends() -> None:
    assert word_list([[5, 6], [7]]) == [[5, 6, 7], [2, 3, -1]]


def test_no_run_is_a_row_of_padding() -> None:
    assert word_list([]) == [[0], [-1]]
