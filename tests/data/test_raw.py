"""Labels to ids, and which samples of a source are kept."""

import math

import numpy as np
import pytest

from fedsaf.data.labels import encode_labels
from fedsaf.data.raw import balanced_subset
from fedsaf.data.sources.embedded import Synthetic
from tests.data.recipe import source_of


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
    assert (named.ids.tolist(), named.names, named.mapping) == ([2, 0], ("a", "b", "c"), {})
    assert encode_labels(["c", "a"], ["a", "b", "c"], "label").ids.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        *(([0, hole, 1, hole], None, r"labels missing: 2 of 4 .* row 1") for hole in (None, -1, math.nan)),
        ([0.5, 1], None, r"label 0\.5 is neither"),
        ([math.inf, 1], None, "label inf is neither"),
        ([[1], [2]], None, "neither"),
        (["a", 1], None, "mix"),
        ([0, 7, 9], ["a", "b"], "7 is not one of the 2 classes .* in row 1, the first of 2 such"),
    ],
)
def test_missing_and_strange_labels_are_named(values, names, message):
    with pytest.raises(ValueError, match=message):
        encode_labels(values, names, "label")


def test_subset_is_balanced_keyed_and_drawn_before_decoding():
    whole, source = source_of(Synthetic, image_size=8).load(1), source_of(Synthetic, image_size=8, max_samples=20)
    part = source.load(1)
    assert part.labels.bincount().tolist() == [5] * 4
    assert part.fingerprint == source.load(1).fingerprint != source.load(1, subset=1).fingerprint
    assert part.parts == {"all": 20}
    kept = [(whole.inputs == image).flatten(1).all(1).nonzero().item() for image in part.inputs]
    assert kept == sorted(kept)
    assert (whole.labels[kept] == part.labels).all()


def test_subset_fills_up_from_larger_classes_and_nests():
    labels = np.repeat([0, 1, 2], [2, 10, 30])
    assert np.bincount(labels[balanced_subset(labels, 20, np.random.default_rng(0))]).tolist() == [2, 9, 9]
    small, large = (set(balanced_subset(labels, m, np.random.default_rng(0))) for m in (6, 12))
    assert small < large
    assert len(balanced_subset(labels, 100, np.random.default_rng(0))) == 42
    assert set(balanced_subset(labels, 12, np.random.default_rng(1))) != large


def test_subsets_of_one_size_have_no_common_sample_and_the_same_classes():
    labels = np.repeat([0, 1, 2], [9, 10, 30])
    subsets = [balanced_subset(labels, 12, np.random.default_rng(0), k) for k in range(2)]
    assert not set(subsets[0]) & set(subsets[1])
    assert [np.bincount(labels[subset]).tolist() for subset in subsets] == [[4, 4, 4]] * 2


@pytest.mark.parametrize(
    ("max_samples", "message"),
    [
        (None, "validation.subset=2 needs dataset.max_samples"),
        (12, "validation.subset=2: only 2 disjoint subsets of dataset.max_samples=12 can be taken from 49 samples"),
        (100, "only 1 disjoint subsets"),
    ],
)
def test_a_subset_that_is_not_there_is_refused(max_samples, message):
    with pytest.raises(ValueError, match=message):
        balanced_subset(np.repeat([0, 1, 2], [9, 10, 30]), max_samples, np.random.default_rng(0), 2)
