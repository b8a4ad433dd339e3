import re

import numpy as np
import pytest
from PIL import Image

from fedsaf.data.decode import Undecoded, cropped, decoded_blocks, decoded_shape
from fedsaf.data.sources.image_tables import Parquet
from tests.data.recipe import encoded, source_of


def decode_images(items, places, mode: str, image_size: int | None) -> np.ndarray:
    """All images at once."""
    rows = [Undecoded(item, place) for item, place in zip(items, places, strict=True)]
    shape = decoded_shape(lambda: rows, mode, image_size)
    return np.concatenate(list(decoded_blocks(rows, shape, resize=image_size is not None)))


GREY = Image.fromarray(np.full((6, 6), 100, np.uint8))
RED = Image.fromarray(np.full((6, 6, 3), (255, 0, 0), np.uint8))


def test_all_modes_meet_in_rgb():
    half_transparent = RED.copy()
    half_transparent.putalpha(128)
    deep = Image.fromarray(np.full((6, 6), 100 * 257, np.uint16))
    palette = RED.quantize(4)
    items = [encoded(i) for i in (GREY, RED, half_transparent, palette, deep, GREY.convert("1"))]
    out = decode_images(items, [str(i) for i in range(6)], "auto", None)
    assert out.shape == (6, 3, 6, 6)
    assert out.dtype == np.uint8
    for row, pixel in zip(out[:5], [(100,) * 3, (255, 0, 0), (255, 0, 0), (255, 0, 0), (100,) * 3], strict=True):
        assert (row == np.array(pixel).reshape(3, 1, 1)).all()
    assert set(np.unique(out[5])) <= {0, 255}


def test_auto_is_grey_only_if_nothing_has_colour():
    assert decode_images([encoded(GREY)] * 2, ["a", "b"], "auto", None).shape[1] == 1
    assert decode_images([encoded(GREY), encoded(RED)], ["a", "b"], "auto", None).shape[1] == 3
    assert decode_images([encoded(RED)], ["a"], "L", None).shape[1] == 1


def test_sixteen_bit_grey_is_scaled_not_clipped():
    levels = np.array([[0, 257, 32896, 65535]] * 4, np.uint16)
    out = decode_images([encoded(Image.fromarray(levels))], ["deep"], "L", None)
    assert out[0, 0, 0].tolist() == [0, 1, 128, 255]


def test_channel_order_and_axes():
    array = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    out = decode_images([array], ["a"], "RGB", None)
    assert (out[0] == array.transpose(2, 0, 1)).all()


def test_exif_orientation_is_applied():
    array = np.zeros((6, 6), np.uint8)
    array[0] = 255  # bright top row
    image = Image.fromarray(array)
    exif = image.getexif()
    exif[0x0112] = 3  # stored upside down
    out = decode_images([encoded(image, exif=exif)], ["a"], "L", None)
    assert out[0, 0, -1].min() == 255
    assert out[0, 0, 0].max() == 0


def test_resizing_makes_sizes_agree_and_keeps_a_flat_image_flat():
    wide = Image.fromarray(np.full((5, 9, 3), 40, np.uint8))
    out = decode_images([encoded(wide), encoded(RED)], ["a", "b"], "auto", 12)
    assert out.shape == (2, 3, 12, 12)
    assert (out[0] == 40).all()


@pytest.mark.parametrize("other", [(6, 7), (7, 7)])
def test_unequal_native_sizes_name_the_image_and_the_option(other):
    odd = Image.fromarray(np.zeros(other, np.uint8))
    for items in ([GREY, odd], [odd, GREY]):
        with pytest.raises(ValueError, match=r"image (first|second) .*dataset\.image_size"):
            decode_images([encoded(i) for i in items], ["first", "second"], "L", None)


def test_corrupt_truncated_and_missing_images_are_named():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    for item in (b"not an image", encoded(noise)[:500], None):
        with pytest.raises(ValueError, match="bad one") as caught:
            decode_images([encoded(RED), item], ["good one", "bad one"], "RGB", 8)
        assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [("png", {}, 0), ("jpeg", {"quality": 75}, 2), ("jpeg", {"quality": 90, "subsampling": 0}, 2)],
)
def test_fast_decoding_agrees_with_pillow(kind, options, tolerance):
    noise = np.random.default_rng(1).integers(0, 256, (3, 24, 24, 3), np.uint8)
    items = [encoded(Image.fromarray(array), kind, **options) for array in noise]
    places = ["a", "b", "c", "d"]
    fast = decode_images(items, places[:3], "RGB", None)
    slow = decode_images([encoded(GREY), *items], places, "RGB", 24)[1:]  # the grey image turns the fast way off
    assert np.abs(fast.astype(int) - slow.astype(int)).max() <= tolerance


def test_truncated_jpeg_is_named():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    with pytest.raises(ValueError, match="half a file"):
        decode_images([encoded(noise, "jpeg")[:800]], ["half a file"], "RGB", 40)


def test_options_are_checked():
    with pytest.raises(ValueError, match="dataset.mode='rgb'"):
        decode_images([encoded(RED)], ["a"], "rgb", None)
    for size in (0, [40, 24], 2.5, True):
        with pytest.raises(ValueError, match=re.escape(f"image_size={size} must be one positive whole number")):
            source_of(Parquet, image_size=size).load(1)


def coordinates(width, height):
    """An image whose red and green channels tell where a pixel comes from."""
    array = np.zeros((height, width, 3), np.uint8)
    array[..., 0], array[..., 1] = np.arange(width), np.arange(height)[:, None]
    return Image.fromarray(array)


def test_crops_have_the_area_and_shape_that_generators_use():
    areas, aspects, flips, corners = [], [], 0, set()
    for seed in range(400):
        array = np.asarray(cropped(coordinates(100, 80), seed)).astype(int)
        height, width = array.shape[:2]
        columns = array[0, :, 0]
        flips += columns[0] > columns[-1]
        assert np.abs(np.diff(columns)).max() == np.diff(array[:, 0, 1]).max() == 1  # a whole piece, not resized
        areas.append(width * height / 8000)
        aspects.append(width / height)
        corners.add((columns.min(), array[0, 0, 1]))
    assert min(areas) > 0.74
    assert max(areas) <= 1
    assert np.mean(areas) < 0.95
    assert min(aspects) > 0.74
    assert max(aspects) < 1.35
    assert 160 < flips < 240
    assert len(corners) > 100


def test_a_crop_is_a_function_of_its_seed():
    image = coordinates(50, 50)
    assert np.array_equal(np.asarray(cropped(image, 3)), np.asarray(cropped(image, 3)))
    assert not np.array_equal(np.asarray(cropped(image, 3)), np.asarray(cropped(image, 4)))


@pytest.mark.parametrize(("size", "expected"), [((200, 20), (27, 20)), ((20, 200), (20, 27)), ((1, 1), (1, 1))])
def test_slivers_give_their_middle(size, expected):
    piece = cropped(coordinates(*size), 0)
    assert piece.size == expected


def test_frozen_crops_touch_training_images_alone_and_follow_the_row(tmp_path, write_parquet):
    def load(path=tmp_path, **options):
        return source_of(Parquet, path=path, **{"image_size": 16, **options}).load(1)

    for part, n in (("train", 12), ("test", 6)):
        rows = {"image": [encoded(coordinates(40 + i, 40)) for i in range(n)], "label": [i % 2 for i in range(n)]}
        write_parquet(tmp_path / f"{part}.parquet", rows)
    plain, frozen = load(), load(frozen_crop=True)
    assert (plain.inputs != frozen.inputs).flatten(1).any(1).tolist() == [True] * 12 + [False] * 6
    part = load(frozen_crop=True, max_per_class=3)
    assert part.subset == {"max_per_class": 3, "of": 18}
    assert (part.inputs == frozen.inputs[:6]).all()
    only = load(tmp_path / "train.parquet", frozen_crop=True)  # no test list: all are cropped
    assert (only.inputs == frozen.inputs[:12]).all()
    for options, message in (
        ({"image_size": None}, r"frozen_crop=true needs dataset\.image_size"),
        ({"splits": ["test", "train"]}, "needs train as the first"),
        ({"max_per_class": 0}, "max_per_class=0"),
    ):
        with pytest.raises(ValueError, match=message):
            load(frozen_crop=True, **options)
