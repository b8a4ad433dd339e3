import pickle
from collections import Counter

import numpy as np
import pytest
import torch

from fedsaf.data.sources.embedded import Digits, Synthetic, SyntheticText
from tests.data.recipe import source_of


def synthetic(**options):
    return source_of(Synthetic, **{"image_size": 8, **options})


def texts(seed=1, **options):
    return source_of(SyntheticText, **{"num_samples": 300, "num_classes": 3, **options}).read(seed)


def test_digits_are_real_and_resized():
    data = source_of(Digits, image_size=32).load(1)
    assert data.inputs.shape == (1797, 1, 32, 32)
    assert data.inputs.dtype == torch.uint8
    assert data.inputs.max() > 250
    assert data.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (data.facts.channels, data.facts.size, data.num_classes) == (1, 32, 10)
    assert data.facts.mean == (0.5,)
    assert data.parts == {"train": 1437, "test": 360}
    assert data.files == ()


def test_synthetic_has_the_asked_shape_and_depends_on_the_seed_alone():
    source = synthetic(channels=1)
    data = source.load(1)
    assert data.inputs.shape == (60, 1, 8, 8)
    assert data.labels.bincount().tolist() == [15] * 4
    assert pickle.loads(pickle.dumps(source)).load(1).fingerprint == data.fingerprint
    assert source.load(2).fingerprint != data.fingerprint


def test_synthetic_classes_can_be_told_apart():
    data = synthetic(num_samples=200).load(3)
    x = data.inputs.float().flatten(1)
    means = torch.stack([x[:100][data.labels[:100] == c].mean(0) for c in range(4)])
    guess = torch.cdist(x[100:], means).argmin(1)
    assert (guess == data.labels[100:]).float().mean() > 0.95


def test_synthetic_groups_are_tinted():
    plain, tinted = synthetic().load(1), synthetic(group_names=["c", "a", "b"]).load(1)
    assert plain.groups is None
    assert tinted.group_names == ("a", "b", "c")  # as every source has them, in the order of their names
    assert tinted.groups.bincount().tolist() == [20, 20, 20]
    assert torch.equal(plain.labels, tinted.labels)
    levels = [tinted.inputs[tinted.groups == g].float().mean((0, 2, 3)) for g in range(3)]
    assert all((a - b).abs().max() > 5 for a, b in zip(levels, levels[1:], strict=False))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"channels": 2}, "channels=2"),
        ({"num_classes": 0}, "num_classes=0"),
        ({"num_classes": 61}, "num_classes=61"),
        ({"image_size": None}, "image_size"),
        ({"max_samples": 3}, "max_samples=3"),
        ({"mean": [0.5, 0.5]}, "mean has 2 values .* 3 channel"),
        ({"std": 0.0}, "std must be positive"),
    ],
)
def test_impossible_options_of_images_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        synthetic(**options).load(1)


def test_texts_repeat_and_another_seed_differs():
    assert texts().items == texts().items
    assert texts(2).items != texts().items


def test_words_of_the_own_class_tell_the_label():
    found = texts()
    for text, label in zip(found.items, found.labels, strict=True):
        assert {word[1] for word in text.split() if word.startswith("c")} <= {str(label)}
    share = np.mean([word.startswith("c") for text in found.items for word in text.split()])
    assert abs(share - 0.3) < 0.03
    assert set(Counter(found.labels).values()) == {100}


def test_groups_have_words_of_their_own():
    found = texts(num_groups=2)
    assert found.group_names == ("group 0", "group 1")
    for text, group in zip(found.items, found.groups, strict=True):
        assert {word[:2] for word in text.split() if word.startswith("g")} <= {f"g{group + 1}"}


@pytest.mark.parametrize("changed", [{"num_classes": 301}, {"num_groups": 0}, {"share": 0.0}])
def test_numbers_of_texts_out_of_range(changed):
    with pytest.raises(ValueError, match=f"dataset.{next(iter(changed))}"):
        texts(**changed)
