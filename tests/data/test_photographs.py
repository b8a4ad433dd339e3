"""Images as users have them: formats, colours and sizes of every kind, through the configurations for own data."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from PIL import Image

from fedsaf.data.decode import cropped
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import LIGHT, TINY, run

CONF = Path(__file__).parents[2] / "conf"
ORANGE = (230, 120, 40)


def load(choice, path, *words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(overrides=[f"+dataset={choice}", f"dataset.path='{path}'", *words])
    return instantiate(config["dataset"]).load(1)


def flat(mode="RGB", size=(40, 30), colour=ORANGE):
    return Image.new("RGB", size, colour).convert(mode)


def rotated_by_its_camera():
    """A picture whose left half is white once it is turned as its camera says."""
    upright = np.zeros((60, 40, 3), np.uint8)
    upright[:, :20] = 255
    image = Image.fromarray(np.rot90(upright).copy())
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned clockwise
    return image, exif


@pytest.fixture
def album(tmp_path):
    """Photographs in two classes, one of them with a name beyond ASCII."""
    root = tmp_path / "my photos"
    for name in ("kočka", "dog"):
        (root / name).mkdir(parents=True)
    flat().save(root / "dog" / "plain.jpg", quality=95)
    flat().save(root / "dog" / "SHOUTED.JPG", "jpeg", quality=95, progressive=True)
    flat("CMYK").save(root / "dog" / "print.jpeg", quality=95)
    flat(size=(3, 500)).save(root / "dog" / "sliver.png")
    flat(size=(1, 1)).save(root / "dog" / "dot.png")
    flat().quantize(8).save(root / "kočka" / "palette.png")
    flat("RGBA").save(root / "kočka" / "über 1.png")
    flat().save(root / "kočka" / "new.webp", lossless=True)
    flat().save(root / "kočka" / "scan.tif")
    flat().save(root / "kočka" / "old.bmp")
    flat(size=(64, 64)).save(root / "kočka" / "fits.jpg", quality=95)
    return root


def test_photographs_of_many_kinds_and_sizes(album):
    data = load("imagefolder", album, "dataset.image_size=64")
    assert data.class_names == ("dog", "kočka")
    assert data.labels.bincount().tolist() == [5, 6]
    assert data.facts.shape == (3, 64, 64)
    off = (data.inputs.int() - np.array(ORANGE).reshape(3, 1, 1)).abs().amax((1, 2, 3))
    assert off.max() <= 4, off


def test_a_photograph_stands_as_its_camera_says(tmp_path):
    (tmp_path / "a").mkdir()
    image, exif = rotated_by_its_camera()
    image.save(tmp_path / "a" / "1.jpg", exif=exif, quality=95)
    pixels = load("imagefolder", tmp_path, "dataset.image_size=8").inputs[0, 0]
    assert pixels[:, :3].min() > 200
    assert pixels[:, 5:].max() < 60


def test_deep_grey_among_colours_keeps_its_scale(album):
    deep = np.full((20, 20), 200 * 257, np.uint16)
    Image.fromarray(deep).save(album / "dog" / "deep.png")
    Image.fromarray((deep // 257).astype(np.uint8)).save(album / "dog" / "shallow.png")
    data = load("imagefolder", album)
    grey = data.inputs[(data.inputs == 200).flatten(1).all(1)]
    assert len(grey) == 2


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0 no more", b"\x89PNG\r\n\x1a\n nothing", b"text"])
def test_a_broken_photograph_is_named(album, content):
    (album / "kočka" / "broken.jpg").write_bytes(content)
    with pytest.raises(ValueError, match=r"image .*kočka.broken\.jpg"):
        load("imagefolder", album)


def test_photographs_are_not_squeezed_in_silence(album):
    with pytest.raises(ValueError, match=r"40 x 30 pixels .*dataset\.image_size"):
        load("imagefolder", album, "dataset.image_size=null")


def scan(level, rng):
    """A 16-bit grey PNG as scanners write them."""
    file = BytesIO()
    Image.fromarray(rng.normal(level, 2_000, (28, 28)).clip(0, 65535).astype(np.uint16)).save(file, "png")
    return file.getvalue()


@pytest.fixture
def scans(tmp_path, write_parquet):
    """A grey medical set with two classes, in two files."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 60), ("test", 20)):
        finding = ["benign", "malignant"] * (n // 2)
        levels = [20_000 if name == "benign" else 40_000 for name in finding]
        rows = {"scan": [{"bytes": scan(level, rng), "path": None} for level in levels], "finding": finding}
        write_parquet(tmp_path / "scans" / f"{part}.parquet", rows, {"scan": "image", "finding": "text"})
    return tmp_path / "scans"


def test_grey_medical_scans_with_two_classes(scans):
    data = load("parquet", scans, "dataset.image_size=null")
    assert data.inputs.shape == (80, 1, 28, 28)
    assert data.class_names == ("benign", "malignant")
    assert data.parts == {"train": 60, "test": 20}
    levels = [data.inputs[data.labels == k].double().mean().item() * 257 for k in (0, 1)]
    assert levels == pytest.approx([20_000, 40_000], rel=0.01)


@pytest.mark.parametrize("words", [["dataset.image_size=null"], ["dataset.image_size=16", "dataset.mode=RGB"]])
def test_grey_medical_scans_train(scans, tmp_path, words):
    own = ["dataset=parquet", f"dataset.path={scans}", "num_clients=2", "partition=iid", "rounds=4"]
    rest = [word for word in TINY if not word.startswith(("dataset", "partition", "num_clients", "rounds", "local"))]
    learning = ["local_epochs=3", "optimizer.lr=0.05"]
    rows = Recorder(run([*rest, *LIGHT, *own, *words, *learning], tmp_path / "run")).rows()
    accuracies = [row["classifier"]["pooled"] for row in rows]
    assert accuracies[-1] >= max(0.7, accuracies[0] + 0.2)


def test_labels_beyond_the_declared_classes_are_named(tmp_path, write_parquet, make_png):
    rows = {"image": [make_png(1)] * 3, "label": [0, 1, 7]}
    rows["image"] = [{"bytes": image, "path": None} for image in rows["image"]]
    file = write_parquet(tmp_path / "a.parquet", rows, {"image": "image", "label": ["x", "y"]})
    with pytest.raises(ValueError, match="label 7 is not one of the 2 classes"):
        load("parquet", file)


def test_a_part_that_lacks_a_column_is_named(tmp_path, write_parquet, make_png):
    write_parquet(tmp_path / "train.parquet", {"image": [make_png(1)], "label": [0]})
    write_parquet(tmp_path / "test.parquet", {"picture": [make_png(1)], "label": [0]})
    with pytest.raises(ValueError, match=r"test\.parquet has no column 'image'.* it has picture, label"):
        load("parquet", tmp_path)


# --- frozen crops ----------------------------------------------------------------------------------------------------


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
    def encoded(i):
        file = BytesIO()
        coordinates(40 + i, 40).save(file, "png")
        return file.getvalue()

    for part, n in (("train", 12), ("test", 6)):
        rows = {"image": [encoded(i) for i in range(n)], "label": [i % 2 for i in range(n)]}
        write_parquet(tmp_path / f"{part}.parquet", rows)
    plain = load("parquet", tmp_path)
    frozen = load("parquet", tmp_path, "dataset.frozen_crop=true")
    changed = (plain.inputs != frozen.inputs).flatten(1).any(1)
    assert changed.tolist() == [True] * 12 + [False] * 6
    part = load("parquet", tmp_path, "dataset.frozen_crop=true", "dataset.max_per_class=3")
    assert part.subset == {"max_per_class": 3, "of": 18}
    assert (part.inputs == frozen.inputs[:6]).all()
    only = load("parquet", tmp_path / "train.parquet", "dataset.frozen_crop=true")  # no test list: all are cropped
    assert (only.inputs == frozen.inputs[:12]).all()
    with pytest.raises(ValueError, match=r"frozen_crop=true needs dataset\.image_size"):
        load("parquet", tmp_path, "dataset.frozen_crop=true", "dataset.image_size=null")
    with pytest.raises(ValueError, match="needs train as the first"):
        load("parquet", tmp_path, "dataset.frozen_crop=true", "dataset.splits=[test,train]")
    with pytest.raises(ValueError, match="max_per_class=0"):
        load("parquet", tmp_path, "dataset.max_per_class=0")
