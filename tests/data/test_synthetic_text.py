from collections import Counter

import numpy as np
import pytest

from fedsaf.data.sources.embedded import SyntheticText

OPTIONS = {
    **{"num_samples": 300, "num_classes": 3, "share": 0.3, "num_groups": None, "form": "tokens", "max_length": 16},
    **{"vocabulary_size": None, "vocabulary_from": "train", "max_samples": None},
}


def raw(**changed):
    return SyntheticText(**{**OPTIONS, **changed}).read(1)


def test_it_repeats_and_another_seed_differs():
    assert raw().items == raw().items
    assert SyntheticText(**OPTIONS).read(2).items != raw().items


def test_words_of_the_own_class_tell_the_label():
    found = raw()
    for text, label in zip(found.items, found.labels, strict=True):
        classes = {word[1] for word in text.split() if word.startswith("c")}
        assert classes <= {str(label)}
    share = np.mean([word.startswith("c") for text in found.items for word in text.split()])
    assert abs(share - 0.3) < 0.03
    assert set(Counter(found.labels).values()) == {100}


def test_groups_have_words_of_their_own():
    found = raw(num_groups=2)
    assert found.group_names == ("group 0", "group 1")
    for text, group in zip(found.items, found.groups, strict=True):
        assert {word[:2] for word in text.split() if word.startswith("g")} <= {f"g{group + 1}"}


@pytest.mark.parametrize("changed", [{"num_classes": 301}, {"num_groups": 0}, {"share": 0.0}])
def test_numbers_out_of_range(changed):
    with pytest.raises(ValueError, match=f"dataset.{next(iter(changed))}"):
        raw(**changed)
