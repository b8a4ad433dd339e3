import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from fedsaf.data.raw import balanced_subset
from fedsaf.data.sources.embedded import Digits, Synthetic
from fedsaf.data.sources.folders import ImageFolder
from fedsaf.data.sources.image_tables import Parquet


def synthetic(common, **options):
    given = {"num_samples": 60, "num_classes": 4, "channels": 3, "noise": 10.0, "image_size": 8}
    given["group_names"] = None
    return Synthetic(**{**common, **given, **options})


def test_digits_are_real_and_resized(common):
    data = Digits(**{**common, "image_size": 32}).load(1)
    assert data.inputs.shape == (1797, 1, 32, 32)
    assert data.inputs.dtype == torch.uint8
    assert data.inputs.max() > 250
    assert data.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (data.facts.channels, data.facts.size, data.num_classes) == (1, 32, 10)
    assert data.facts.mean == (0.5,)
    assert data.parts == {"train": 1437, "test": 360}


def test_synthetic_has_the_asked_shape_and_depends_on_the_seed_alone(common):
    source = synthetic(common, channels=1)
    data = source.load(1)
    assert data.inputs.shape == (60, 1, 8, 8)
    assert data.labels.bincount().tolist() == [15] * 4
    assert pickle.loads(pickle.dumps(source)).load(1).fingerprint == data.fingerprint
    assert source.load(2).fingerprint != data.fingerprint


def test_synthetic_classes_can_be_told_apart(common):
    data = synthetic(common, num_samples=200).load(3)
    x = data.inputs.float().flatten(1)
    means = torch.stack([x[:100][data.labels[:100] == c].mean(0) for c in range(4)])
    guess = torch.cdist(x[100:], means).argmin(1)
    assert (guess == data.labels[100:]).float().mean() > 0.95


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
def test_impossible_options_are_named(common, options, named):
    with pytest.raises(ValueError, match=named):
        synthetic(common, **options).load(1)


def test_subset_is_balanced_keyed_and_drawn_before_decoding(common):
    whole = synthetic(common).load(1)
    source = synthetic(common, max_samples=20)
    part = source.load(1)
    assert part.labels.bincount().tolist() == [5] * 4
    assert part.fingerprint == source.load(1).fingerprint
    assert part.parts == {"all": 20}
    kept = [(whole.inputs == image).flatten(1).all(1).nonzero().item() for image in part.inputs]
    assert kept == sorted(kept)
    assert (whole.labels[kept] == part.labels).all()


def test_subset_fills_up_from_larger_classes_and_nests():
    labels = np.repeat([0, 1, 2], [2, 10, 30])
    counts = np.bincount(labels[balanced_subset(labels, 20, np.random.default_rng(0))])
    assert counts.tolist() == [2, 9, 9]
    small, large = (set(balanced_subset(labels, m, np.random.default_rng(0))) for m in (6, 12))
    assert small < large
    assert len(balanced_subset(labels, 100, np.random.default_rng(0))) == 42
    assert set(balanced_subset(labels, 12, np.random.default_rng(1))) != large


def test_subsets_of_one_size_have_no_common_sample_and_the_same_classes(common):
    labels = np.repeat([0, 1, 2], [9, 10, 30])
    subsets = [balanced_subset(labels, 12, np.random.default_rng(0), k) for k in range(2)]
    assert not set(subsets[0]) & set(subsets[1])
    for subset in subsets:
        assert np.bincount(labels[subset]).tolist() == [4, 4, 4]
    source = synthetic(common, max_samples=20)
    assert source.load(1).fingerprint == source.load(1, subset=0).fingerprint != source.load(1, subset=1).fingerprint


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


# --- parquet ---------------------------------------------------------------------------------------------------------


def images(png, levels):
    return [{"bytes": png(level), "path": None} for level in levels]


def test_hub_layout_parts_are_pooled_train_first(tmp_path, table_options, write_parquet, make_png):
    kinds = {"img": "image", "label": ["cat", "dog", "emu"]}
    write_parquet(tmp_path / "test-0.parquet", {"img": images(make_png, [30]), "label": [0]}, kinds)
    write_parquet(tmp_path / "train-1.parquet", {"img": images(make_png, [20]), "label": [1]}, kinds)
    write_parquet(tmp_path / "train-0.parquet", {"img": images(make_png, [10, 11]), "label": [1, 0]}, kinds)
    data = Parquet(path=str(tmp_path), **table_options).load(1)
    assert data.inputs[:, 0, 0, 0].tolist() == [10, 11, 20, 30]
    assert data.labels.tolist() == [1, 0, 1, 0]
    assert data.class_names == ("cat", "dog", "emu")
    assert data.parts == {"train": 3, "test": 1}
    assert Parquet(path=str(tmp_path), **{**table_options, "splits": ["test", "train"]}).load(1).parts == {
        "test": 1,
        "train": 3,
    }
    assert Parquet(path=str(tmp_path), **{**table_options, "splits": ["train"]}).load(1).parts == {"train": 3}
    with pytest.raises(ValueError, match=r"none of these parts .*\['test', 'train'\]"):
        Parquet(path=str(tmp_path), **{**table_options, "splits": ["valid"]}).load(1)


def test_reading_writes_nothing_beside_the_data(tmp_path, table_options, write_parquet, make_png):
    write_parquet(tmp_path / "d" / "a.parquet", {"img": images(make_png, [1, 2]), "label": [0, 1]}, None)
    Parquet(path=str(tmp_path / "d"), **table_options).load(1)
    assert [f.name for f in tmp_path.rglob("*") if f.is_file()] == ["a.parquet"]


def test_absent_part_is_said_and_the_rest_pooled(tmp_path, table_options, write_parquet, make_png, caplog):
    write_parquet(tmp_path / "train.parquet", {"img": images(make_png, [1, 2]), "label": [0, 1]})
    write_parquet(tmp_path / "extra.parquet", {"img": images(make_png, [3]), "label": [0]})
    data = Parquet(path=str(tmp_path), **{**table_options, "splits": ["train", "test"]}).load(1)
    assert data.parts == {"train": 2}
    assert "no part test" in caplog.text


def test_single_candidates_are_taken_and_announced(tmp_path, table_options, write_parquet, make_png, caplog):
    file = write_parquet(
        tmp_path / "a.parquet",
        {"img": images(make_png, [5, 6]), "fine_label": [1, 0], "note": ["x", "y"]},
        {"img": "image", "fine_label": ["a", "b"], "note": "text"},
    )
    with caplog.at_level("INFO"):
        data = Parquet(path=str(file), **table_options).load(1)
    assert data.labels.tolist() == [1, 0]
    assert "image_column is 'img'" in caplog.text
    assert "label_column is 'fine_label'" in caplog.text


def test_two_label_columns_are_an_error_that_lists_them(tmp_path, table_options, write_parquet, make_png):
    file = write_parquet(
        tmp_path / "a.parquet",
        {"img": images(make_png, [5, 6]), "fine_label": [1, 0], "coarse_label": [0, 0]},
        {"img": "image", "fine_label": ["a", "b"], "coarse_label": ["c"]},
    )
    with pytest.raises(ValueError, match=r"fine_label, coarse_label.*dataset\.label_column"):
        Parquet(path=str(file), **table_options).load(1)
    data = Parquet(path=str(file), **{**table_options, "label_column": "fine_label"}).load(1)
    assert data.class_names == ("a", "b")


def test_wrong_columns_are_named_with_what_there_is(tmp_path, table_options, write_parquet, make_png):
    file = write_parquet(tmp_path / "a.parquet", {"img": images(make_png, [5]), "score": [0.5]})
    with pytest.raises(ValueError, match=r"image_column='image' is not a column .*img"):
        Parquet(path=str(file), **{**table_options, "image_column": "image"}).load(1)
    with pytest.raises(ValueError, match=r"no column fits; set dataset\.label_column"):
        Parquet(path=str(file), **table_options).load(1)
    file = write_parquet(tmp_path / "b.parquet", {"score": [0.5], "id": [0]})
    with pytest.raises(ValueError, match="holds float, not encoded images"):
        Parquet(path=str(file), **{**table_options, "image_column": "score", "label_column": "id"}).load(1)


def test_plain_file_with_raw_bytes_and_gapped_labels(tmp_path, table_options, write_parquet, make_png):
    file = write_parquet(tmp_path / "mine.parquet", {"pic": [make_png(v) for v in (1, 2, 3)], "digit": [7, 3, 9]})
    data = Parquet(path=str(file), **table_options).load(1)
    assert data.name == "mine"
    assert data.labels.tolist() == [1, 0, 2]
    assert data.label_mapping == {"3": 0, "7": 1, "9": 2}


def test_images_kept_beside_the_file(tmp_path, table_options, write_parquet, make_png):
    (tmp_path / "one.png").write_bytes(make_png(77))
    file = write_parquet(
        tmp_path / "a.parquet",
        {"image": [{"bytes": None, "path": "one.png"}], "label": ["x"]},
        {"image": "image", "label": "text"},
    )
    assert Parquet(path=str(file), **table_options).load(1).inputs[0, 0].unique().tolist() == [77]


def test_groups_and_missing_labels(tmp_path, table_options, write_parquet, make_png):
    columns = {"image": images(make_png, [1, 2, 3]), "domain": ["photo", "art", "photo"], "label": [0, 1, 0]}
    kinds = {"image": "image", "domain": "text", "label": ["a", "b"]}
    options = {**table_options, "group_column": "domain"}
    data = Parquet(path=str(write_parquet(tmp_path / "a.parquet", columns, kinds)), **options).load(1)
    assert data.groups.tolist() == [1, 0, 1]
    assert data.group_names == ("art", "photo")
    holed = write_parquet(tmp_path / "b.parquet", {**columns, "label": [0, -1, 0]}, kinds)
    with pytest.raises(ValueError, match="labels missing: 1 of 3"):
        Parquet(path=str(holed), **options).load(1)


def test_parts_that_name_classes_differently_are_refused(tmp_path, table_options, write_parquet, make_png):
    for part, names in (("train", ["a", "b"]), ("test", ["b", "a"])):
        columns = {"img": images(make_png, [1]), "label": [0]}
        write_parquet(tmp_path / f"{part}.parquet", columns, {"img": "image", "label": names})
    with pytest.raises(
        ValueError, match="test.parquet defines column .label. differently from train.parquet: with other class names"
    ):
        Parquet(path=str(tmp_path), **table_options).load(1)


def test_bad_paths(tmp_path, table_options):
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    (tmp_path / "empty").mkdir()
    for path, message in [
        (None, "path=null"),
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", "no .parquet file"),
        (tmp_path / "broken.parquet", "not a readable parquet"),
    ]:
        with pytest.raises(ValueError, match=message):
            Parquet(path=path and str(path), **table_options).load(1)


# --- image folder ----------------------------------------------------------------------------------------------------


def folder(tmp_path, common, **options):
    return ImageFolder(path=str(tmp_path), splits=options.pop("splits", None), **{**common, **options})


def save(path, array, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path)


def test_odd_folder(tmp_path, common, caplog):
    grey = np.full((10, 12), 50, np.uint8)
    save(tmp_path / "b" / "l.png", grey)
    save(tmp_path / "b" / "deep.png", grey.astype(np.uint16) * 257)
    save(tmp_path / "a" / "rgb.jpg", np.stack([grey] * 3, -1)[:8])
    save(tmp_path / "a" / "rgba.png", np.stack([grey] * 4, -1))
    save(tmp_path / "a" / "deeper" / "palette.gif", np.stack([grey] * 3, -1), "P")
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.png").write_bytes(b"")
    with caplog.at_level("INFO"):
        data = folder(tmp_path, common, image_size=8).load(1)
    assert data.inputs.shape == (5, 3, 8, 8)
    assert (data.inputs.int() - 50).abs().max() <= 2
    assert data.labels.tolist() == [0, 0, 0, 1, 1]
    assert data.label_mapping == {"a": 0, "b": 1}
    assert "1 files that are no images are skipped" in caplog.text


def test_part_folders(tmp_path, common):
    for part in ("test", "train"):
        for name in ("cat", "dog"):
            save(tmp_path / part / name / "1.png", np.zeros((4, 4), np.uint8))
    assert folder(tmp_path, common).load(1).parts == {"train": 2, "test": 2}
    assert folder(tmp_path, common, splits=["train"]).load(1).parts == {"train": 2}
    assert folder(tmp_path / "train", common).load(1).parts == {"all": 2}


def test_folder_errors(tmp_path, common):
    with pytest.raises(ValueError, match="is not a folder"):
        folder(tmp_path / "nowhere", common).load(1)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "readme.txt").write_text("x")
    with pytest.raises(ValueError, match="no image"):
        folder(tmp_path, common).load(1)
    (tmp_path / "a" / "bad.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(ValueError, match=r"bad\.png"):
        folder(tmp_path, common).load(1)
    (tmp_path / "a" / "bad.png").unlink()
    save(tmp_path / "loose.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(ValueError, match=r"labels missing: .*loose\.png"):
        folder(tmp_path, common).load(1)
    with pytest.raises(ValueError, match="no part folders"):
        folder(tmp_path, common, splits=["train"]).load(1)


def test_synthetic_groups_are_tinted(common):
    plain, tinted = synthetic(common).load(1), synthetic(common, group_names=["c", "a", "b"]).load(1)
    assert plain.groups is None
    assert tinted.group_names == ("a", "b", "c")  # as every source has them, in the order of their names
    assert tinted.groups.bincount().tolist() == [20, 20, 20]
    assert torch.equal(plain.labels, tinted.labels)
    levels = [tinted.inputs[tinted.groups == g].float().mean((0, 2, 3)) for g in range(3)]
    assert all((a - b).abs().max() > 5 for a, b in zip(levels, levels[1:], strict=False))
