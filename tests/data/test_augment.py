"""Crops, flips and rotations against the slow way, image by image."""

import dataclasses

import numpy as np
import pytest
import torch
from torchvision.transforms.functional import rotate

from fedsaf.core.seeding import seeded
from fedsaf.core.types import ImageFacts, TokenFacts
from fedsaf.data.augment import Augment, _rotated
from tests.federation.harness import TINY, make_job

OFF = Augment(padding=0, padding_mode="zero", flip=False, degrees=0)
IMAGES = torch.randint(1, 256, (64, 3, 7, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def images(size):
    return ImageFacts(1, size, (0.5,), (0.5,), "")


def augmented(seed=0, **options):
    with seeded(seed, "test"):
        return dataclasses.replace(OFF, **options)(IMAGES)


def test_off_passes_the_batch_through_and_draws_nothing():
    state = torch.get_rng_state()
    assert OFF(IMAGES) is IMAGES
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("mode", "numpy_mode"), [("zero", "constant"), ("reflect", "reflect")])
def test_crops_are_windows_of_the_padded_image(mode, numpy_mode):
    crops = augmented(padding=2, padding_mode=mode).numpy()
    found = set()
    for image, crop in zip(IMAGES.numpy(), crops, strict=True):
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode=numpy_mode)
        places = [(r, c) for r in range(5) for c in range(5) if (padded[:, r : r + 7, c : c + 7] == crop).all()]
        assert len(places) == 1
        found |= set(places)
    assert {r for r, _ in found} == {c for _, c in found} == set(range(5)), "every shift occurs"


def test_a_flip_mirrors_about_half_of_the_images():
    flipped = augmented(flip=True)
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(IMAGES, flipped, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(IMAGES, flipped, strict=True)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert 16 < sum(mirrored) < 48


@pytest.mark.parametrize("degrees", [-90.0, 0.0, 10.0, 15.0, 180.0])
def test_a_rotation_is_that_of_torchvision(degrees):
    rows, columns = _rotated(7, torch.tensor([[[np.radians(degrees)]]], dtype=torch.float64))
    inside = (rows >= 0) & (rows < 7) & (columns >= 0) & (columns < 7)
    own = IMAGES[0][:, rows[0].clamp(0, 6), columns[0].clamp(0, 6)] * inside
    assert torch.equal(own, rotate(IMAGES[0], degrees))


def test_rotations_stay_within_their_bound_and_blacken_corners():
    turned = augmented(degrees=15)
    assert torch.equal(turned[:, :, 3, 3], IMAGES[:, :, 3, 3]), "the centre stays"
    assert set(turned.unique().tolist()) <= {0, *IMAGES.unique().tolist()}


def test_the_ambient_stream_decides():
    options = {"padding": 4, "padding_mode": "reflect", "flip": True, "degrees": 15}
    before = IMAGES.clone()
    assert torch.equal(augmented(**options), augmented(**options))
    assert not torch.equal(augmented(**options), augmented(seed=1, **options))
    assert torch.equal(IMAGES, before)
    assert augmented(**options).dtype == torch.uint8


@pytest.mark.parametrize("options", [{"padding": -1}, {"degrees": 181}, {"degrees": -1}, {"padding_mode": "edge"}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=f"augment.{next(iter(options))}="):
        dataclasses.replace(OFF, **options)


def test_a_border_wider_than_the_image_cannot_be_reflected():
    augment = dataclasses.replace(OFF, padding=8, padding_mode="reflect")
    augment.check(images(9))
    with pytest.raises(ValueError, match="padding=8 cannot be reflected in images of side 8"):
        augment.check(images(8))


def test_only_images_are_augmented():
    OFF.check(TokenFacts(length=80, num_tokens=80))
    with pytest.raises(ValueError, match="sequences of 80 tokens; take augment=none"):
        dataclasses.replace(OFF, flip=True).check(TokenFacts(length=80, num_tokens=80))


def test_only_training_batches_are_augmented(tmp_path):
    loaders = [
        make_job([*TINY, *words], tmp_path).loaders(torch.device("cpu"))[3] for words in ([], ["augment=cifar10"])
    ]
    order = torch.arange(loaders[0].num_train)
    passes = {
        "clean": lambda f: f.clean_pass(),
        "test": lambda f: f.test_pass(),
        "train": lambda f: f.train_pass(order),
    }
    for name, read in passes.items():
        plain, other = (torch.cat([x for x, _ in read(loader)]) for loader in loaders)
        assert torch.equal(plain, other) == (name != "train"), name
