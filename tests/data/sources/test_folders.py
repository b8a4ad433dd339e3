"""Images and texts as users have them, a folder per class: formats, colours, sizes and encodings of every kind."""

import numpy as np
import pytest
from PIL import Image

from fedsaf.data.sources.folders import ImageFolder, TextFolder
from tests.data.recipe import source_of

ORANGE = (230, 120, 40)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path_factory.mktemp("cache")))


def load(path, **options):
    return source_of(ImageFolder, path=path, **options).load(1)


def texts(path, **options):
    return source_of(TextFolder, path=path, **options).load(1)


def save(path, array, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path)


def write(path, content, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(encoding))
    return path


def test_odd_folder(tmp_path, caplog):
    grey = np.full((10, 12), 50, np.uint8)
    save(tmp_path / "b" / "l.png", grey)
    save(tmp_path / "b" / "deep.png", grey.astype(np.uint16) * 257)
    save(tmp_path / "a" / "rgb.jpg", np.stack([grey] * 3, -1)[:8])
    save(tmp_path / "a" / "rgba.png", np.stack([grey] * 4, -1))
    save(tmp_path / "a" / "deeper" / "palette.gif", np.stack([grey] * 3, -1), "P")
    write(tmp_path / "a" / "notes.txt", "not an image")
    write(tmp_path / ".hidden" / "x.png", "")
    with caplog.at_level("INFO"):
        data = load(tmp_path, image_size=8)
    assert data.inputs.shape == (5, 3, 8, 8)
    assert (data.inputs.int() - 50).abs().max() <= 2
    assert data.labels.tolist() == [0, 0, 0, 1, 1]
    assert data.label_mapping == {"a": 0, "b": 1}
    assert [file.name for file in data.files] == ["palette.gif", "rgb.jpg", "rgba.png", "deep.png", "l.png"]
    assert "1 files that are no images are skipped" in caplog.text


def test_part_folders(tmp_path):
    for part in ("test", "train"):
        for name in ("cat", "dog"):
            save(tmp_path / part / name / "1.png", np.zeros((4, 4), np.uint8))
    assert load(tmp_path).parts == {"train": 2, "test": 2}
    assert load(tmp_path, splits=["train"]).parts == {"train": 2}
    assert load(tmp_path / "train").parts == {"all": 2}


def test_folder_errors(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        load(tmp_path / "nowhere")
    write(tmp_path / "a" / "readme.txt", "x")
    with pytest.raises(ValueError, match="no image"):
        load(tmp_path)
    save(tmp_path / "loose.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(ValueError, match=r"labels missing: .*loose\.png"):
        load(tmp_path)
    with pytest.raises(ValueError, match="no part folders"):
        load(tmp_path, splits=["train"])


def flat(mode="RGB", size=(40, 30), colour=ORANGE):
    return Image.new("RGB", size, colour).convert(mode)


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
    data = load(album, image_size=64)
    assert data.class_names == ("dog", "kočka")
    assert data.labels.bincount().tolist() == [5, 6]
    assert data.facts.shape == (3, 64, 64)
    off = (data.inputs.int() - np.array(ORANGE).reshape(3, 1, 1)).abs().amax((1, 2, 3))
    assert off.max() <= 4, off
    with pytest.raises(ValueError, match=r"40 x 30 pixels .*dataset\.image_size"):
        load(album)


def test_a_photograph_stands_as_its_camera_says(tmp_path):
    upright = np.zeros((60, 40, 3), np.uint8)
    upright[:, :20] = 255
    image = Image.fromarray(np.rot90(upright).copy())
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned clockwise
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / "1.jpg", exif=exif, quality=95)
    pixels = load(tmp_path, image_size=8).inputs[0, 0]
    assert pixels[:, :3].min() > 200
    assert pixels[:, 5:].max() < 60


def test_deep_grey_among_colours_keeps_its_scale(album):
    deep = np.full((20, 20), 200 * 257, np.uint16)
    save(album / "dog" / "deep.png", deep)
    save(album / "dog" / "shallow.png", (deep // 257).astype(np.uint8))
    data = load(album, image_size=32)
    assert (data.inputs == 200).flatten(1).all(1).sum() == 2


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0 no more", b"\x89PNG\r\n\x1a\n nothing", b"text"])
def test_a_broken_photograph_is_named(album, content):
    (album / "kočka" / "broken.jpg").write_bytes(content)
    with pytest.raises(ValueError, match=r"image .*kočka.broken\.jpg"):
        load(album, image_size=32)


def test_links_are_followed_and_those_that_lead_nowhere_or_back_are_named(tmp_path, caplog):
    root, store = tmp_path / "root", tmp_path / "store"
    for name in ("a", "b", "c"):
        write(store / name / "1.txt", name)
    write(root / "d" / "1.txt", "d")
    for name in ("a", "b"):
        (root / name).symlink_to(store / name)
    (root / "d" / "2.txt").symlink_to(store / "c" / "1.txt")
    assert texts(root).texts == ["a", "b", "d", "c"]
    assert not caplog.records
    for link, target in ((root / "d" / "3.txt", "gone"), (store / "a" / "up", root), (store / "b" / "self", "../b")):
        link.symlink_to(target)
    (root / "e").symlink_to(tmp_path / "gone")
    assert texts(root).texts == ["a", "b", "d", "c"]
    assert "4 links lead nowhere or back and are skipped, such as" in caplog.text


def test_a_folder_beside_the_parts_is_named_and_left_out(tmp_path, caplog):
    for part in ("train", "test"):
        write(tmp_path / part / "ham" / "1.txt", part)
    write(tmp_path / "previews" / "ham.txt", "stray")
    samples = texts(tmp_path)
    assert (samples.texts, samples.class_names, samples.parts) == (["train", "test"], ("ham",), {"train": 1, "test": 1})
    assert "previews stand beside the parts and are left out" in caplog.text


def test_classes_that_are_named_like_parts_are_classes(tmp_path):
    for name in ("bus", "test", "train"):
        write(tmp_path / name / "1.txt", name)
    assert texts(tmp_path).class_names == ("bus", "test", "train")


def test_texts_with_parts_and_odd_files(tmp_path, caplog):
    root = tmp_path / "mail"
    write(root / "train" / "spam" / "1.txt", "Buy\nthis", "utf-8-sig")
    write(root / "train" / "ham" / "deep" / "2.TXT", "Dear friend")
    write(root / "test" / "ham" / "3.txt", "")
    write(root / "test" / "ham" / "notes.md", "no text")
    write(root / ".hidden" / "x.txt", "hidden")
    with caplog.at_level("INFO"):
        samples = texts(root)
    assert samples.name == "mail"
    assert samples.texts == ["Dear friend", "Buy\nthis", ""]
    assert samples.labels.tolist() == [0, 1, 0]
    assert samples.label_mapping == {"ham": 0, "spam": 1}
    assert samples.parts == {"train": 2, "test": 1}
    assert [file.name for file in samples.files] == ["2.TXT", "1.txt", "3.txt"]
    assert "1 files that are no texts are skipped" in caplog.text
    assert texts(root / "train").parts == {"all": 2}
    assert texts(root, splits=["train"]).parts == {"train": 2}


def test_errors_of_text_folders(tmp_path):
    with pytest.raises(ValueError, match="dataset.path=null: name a folder"):
        texts(None)
    write(tmp_path / "a" / "x.doc", "")
    with pytest.raises(ValueError, match=r"holds no text that ends in \.txt"):
        texts(tmp_path)
    file = write(tmp_path / "a" / "x.txt", "ok\ncafé", "latin-1")
    with pytest.raises(ValueError, match=rf"{file}, line 2: byte 0xe9"):
        texts(tmp_path)
    write(tmp_path / "stray.txt", "a")
    with pytest.raises(ValueError, match="stray.txt lies in no class folder"):
        texts(tmp_path)
