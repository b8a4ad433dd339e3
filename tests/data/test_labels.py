import math

import pytest

from fedsaf.data.labels import encode_labels


def test_gapped_integers_are_mapped_by_value_and_recorded():
    encoded = encode_labels([9, 3, 10, 3], None, "label")
    assert encoded.ids.tolist() == [1, 0, 2, 0]
    assert encoded.names == ("3", "9", "10")
    assert encoded.mapping == {"3": 0, "9": 1, "10": 2}


def test_strings_are_mapped_alphabetically():
    encoded = encode_labels(["dog", "cat", "dog"], None, "label")
    assert encoded.ids.tolist() == [1, 0, 1]
    assert encoded.mapping == {"cat": 0, "dog": 1}


def test_contiguous_integers_and_named_classes_stay():
    assert encode_labels([1, 0, 2.0], None, "label").mapping == {}
    named = encode_labels([2, 0], ["a", "b", "c"], "label")
    assert named.ids.tolist() == [2, 0]
    assert named.names == ("a", "b", "c")
    assert encode_labels(["c", "a"], ["a", "b", "c"], "label").ids.tolist() == [2, 0]


@pytest.mark.parametrize("hole", [None, -1, math.nan])
def test_missing_labels_are_counted_and_located(hole):
    with pytest.raises(ValueError, match=r"labels missing: 2 of 4 .* row 1"):
        encode_labels([0, hole, 1, hole], None, "label")


def test_strange_labels():
    with pytest.raises(ValueError, match=r"0\.5"):
        encode_labels([0.5, 1], None, "label")
    with pytest.raises(ValueError, match="mix"):
        encode_labels(["a", 1], None, "label")
    with pytest.raises(ValueError, match="7 is not one of the 2 classes .* in row 1, the first of 2 such"):
        encode_labels([0, 7, 9], ["a", "b"], "label")
    with pytest.raises(ValueError, match="neither"):
        encode_labels([[1], [2]], None, "label")
