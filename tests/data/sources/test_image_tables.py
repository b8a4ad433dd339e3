import numpy as np
import pytest

from fedsaf.data.sources.image_tables import HubImages, Parquet
from fedsaf.tracking.recorder import Recorder
from tests.data.recipe import encoded, images, png, source_of
from tests.federation.harness import LIGHT, TINY, run


def load(path, **options):
    return source_of(Parquet, path=path, **options).load(1)


def test_hub_layout_parts_are_pooled_train_first(tmp_path, write_parquet):
    kinds = {"img": "image", "label": ["cat", "dog", "emu"]}
    write_parquet(tmp_path / "test-0.parquet", {"img": images(30), "label": [0]}, kinds)
    write_parquet(tmp_path / "train-1.parquet", {"img": images(20), "label": [1]}, kinds)
    write_parquet(tmp_path / "train-0.parquet", {"img": images(10, 11), "label": [1, 0]}, kinds)
    data = load(tmp_path)
    assert data.inputs[:, 0, 0, 0].tolist() == [10, 11, 20, 30]
    assert data.labels.tolist() == [1, 0, 1, 0]
    assert data.class_names == ("cat", "dog", "emu")
    assert data.parts == {"train": 3, "test": 1}
    assert [file.name for file in data.files] == ["train-0.parquet", "train-1.parquet", "test-0.parquet"]
    assert list(load(tmp_path, splits=["test", "train"]).parts.items()) == [("test", 1), ("train", 3)]
    assert load(tmp_path, splits=["train"]).parts == {"train": 3}
    with pytest.raises(ValueError, match=r"none of these parts .*\['test', 'train'\]"):
        load(tmp_path, splits=["valid"])


def test_absent_part_is_said_and_the_rest_pooled_and_nothing_written(tmp_path, write_parquet, caplog):
    write_parquet(tmp_path / "train.parquet", {"img": images(1, 2), "label": [0, 1]})
    write_parquet(tmp_path / "extra.parquet", {"img": images(3), "label": [0]})
    assert load(tmp_path, splits=["train", "test"]).parts == {"train": 2}
    assert "no part test" in caplog.text
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {"train.parquet", "extra.parquet"}


def test_single_candidates_are_taken_and_announced(tmp_path, write_parquet, caplog):
    columns = {"img": images(5, 6), "fine_label": [1, 0], "note": ["x", "y"]}
    kinds = {"img": "image", "fine_label": ["a", "b"], "note": "text"}
    with caplog.at_level("INFO"):
        data = load(write_parquet(tmp_path / "a.parquet", columns, kinds))
    assert data.labels.tolist() == [1, 0]
    assert "image_column is 'img'" in caplog.text
    assert "label_column is 'fine_label'" in caplog.text


def test_two_label_columns_are_an_error_that_lists_them_unless_one_has_a_usual_name(tmp_path, write_parquet):
    columns = {"img": images(5, 6), "fine_label": [1, 0], "coarse_label": [0, 0]}
    kinds = {"img": "image", "fine_label": ["a", "b"], "coarse_label": ["c"]}
    file = write_parquet(tmp_path / "a.parquet", columns, kinds)
    with pytest.raises(ValueError, match=r"fine_label, coarse_label.*dataset\.label_column"):
        load(file)
    assert load(file, label_column="fine_label").class_names == ("a", "b")
    file = write_parquet(tmp_path / "b.parquet", {"img": images(5, 6), "id": [7, 8], "label": [1, 0]})
    assert load(file).labels.tolist() == [1, 0]


def test_wrong_columns_are_named_with_what_there_is(tmp_path, write_parquet):
    file = write_parquet(tmp_path / "a.parquet", {"img": images(5), "score": [0.5]})
    with pytest.raises(ValueError, match=r"image_column='image' is not a column .*img"):
        load(file, image_column="image")
    with pytest.raises(ValueError, match=r"no column fits; set dataset\.label_column"):
        load(file)
    file = write_parquet(tmp_path / "b.parquet", {"score": [0.5], "id": [0]})
    with pytest.raises(ValueError, match="holds float, not encoded images"):
        load(file, image_column="score", label_column="id")


def test_plain_file_with_raw_bytes_and_gapped_labels(tmp_path, write_parquet):
    data = load(write_parquet(tmp_path / "mine.parquet", {"pic": [png(v) for v in (1, 2, 3)], "digit": [7, 3, 9]}))
    assert data.name == "mine"
    assert data.labels.tolist() == [1, 0, 2]
    assert data.label_mapping == {"3": 0, "7": 1, "9": 2}


def test_images_kept_beside_the_file(tmp_path, write_parquet):
    (tmp_path / "one.png").write_bytes(png(77))
    columns = {"image": [{"bytes": None, "path": "one.png"}], "label": ["x"]}
    file = write_parquet(tmp_path / "a.parquet", columns, {"image": "image", "label": "text"})
    assert load(file).inputs[0, 0].unique().tolist() == [77]


def test_groups_and_bad_labels(tmp_path, write_parquet):
    columns = {"image": images(1, 2, 3), "domain": ["photo", "art", "photo"]}
    kinds = {"image": "image", "domain": "text", "label": ["a", "b"]}
    data = load(write_parquet(tmp_path / "a.parquet", {**columns, "label": [0, 1, 0]}, kinds), group_column="domain")
    assert data.groups.tolist() == [1, 0, 1]
    assert data.group_names == ("art", "photo")
    for labels, message in (([0, -1, 0], "labels missing: 1 of 3"), ([0, 1, 7], "label 7 is not one of the 2 classes")):
        file = write_parquet(tmp_path / "b.parquet", {**columns, "label": labels}, kinds)
        with pytest.raises(ValueError, match=message):
            load(file, group_column="domain")


def test_domains_that_the_hub_numbers_come_in_alphabetical_order(tmp_path, write_parquet):
    """DomainNet's copy declares its domains as a class label; the order of the numbers is not the papers' order."""
    columns = {"image": images(0, 1, 2, 3), "label": [0, 1, 0, 1], "domain": [0, 1, 2, 0]}
    kinds = {"image": "image", "label": ["ant", "bat"], "domain": ["sketch", "real", "clipart", "unused"]}
    write_parquet(tmp_path / "train.parquet", columns, kinds)
    data = source_of(HubImages, name="domains", path=tmp_path, group_column="domain").load(1)
    assert data.group_names == ("clipart", "real", "sketch")
    assert data.groups.tolist() == [2, 1, 0, 2]
    assert data.class_names == ("ant", "bat")


def test_parts_that_differ_are_refused(tmp_path, write_parquet):
    for part, names in (("train", ["a", "b"]), ("test", ["b", "a"])):
        columns, kinds = {"img": images(1), "label": [0]}, {"img": "image", "label": names}
        write_parquet(tmp_path / "names" / f"{part}.parquet", columns, kinds)
    with pytest.raises(ValueError, match="test.parquet defines column 'label' differently from .*other class names"):
        load(tmp_path / "names")
    write_parquet(tmp_path / "lacks" / "train.parquet", {"image": [png(1)], "label": [0]})
    write_parquet(tmp_path / "lacks" / "test.parquet", {"picture": [png(1)], "label": [0]})
    with pytest.raises(ValueError, match=r"test\.parquet has no column 'image'.* it has picture, label"):
        load(tmp_path / "lacks")


def test_bad_paths(tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    (tmp_path / "empty").mkdir()
    for path, message in [
        (None, "path=null"),
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", r"no table that can be read: \.parquet"),
        (tmp_path / "broken.parquet", "not a readable parquet"),
    ]:
        with pytest.raises(ValueError, match=message):
            load(path)


def test_rows_are_streamed_over_row_groups_and_only_kept_ones_are_read(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [b"never decoded" if i % 2 else png(i) for i in range(100)]
    table = pa.table({"img": rows, "label": [i % 2 for i in range(100)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    part = source_of(Parquet, path=tmp_path / "a.parquet", mode="RGB").read(1).items
    keep = np.array([0, 6, 8, 48, 50, 98])
    assert [image.item for image in part.rows(keep)] == [png(i) for i in keep]
    assert [image.place for image in part.rows(keep)][-1] == "a.parquet, row 98"
    assert [image.item for image in part.rows(keep)] == [png(i) for i in keep]  # anew


@pytest.fixture
def scans(tmp_path, write_parquet):
    """A grey medical set with two classes, in two files, 16 bits deep as scanners write them."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 60), ("test", 20)):
        finding = ["benign", "malignant"] * (n // 2)
        levels = [20_000 if name == "benign" else 40_000 for name in finding]
        deep = [rng.normal(level, 2_000, (28, 28)).clip(0, 65535).astype(np.uint16) for level in levels]
        rows = {"scan": [{"bytes": encoded(image), "path": None} for image in deep], "finding": finding}
        write_parquet(tmp_path / "scans" / f"{part}.parquet", rows, {"scan": "image", "finding": "text"})
    return tmp_path / "scans"


def test_grey_medical_scans_with_two_classes_train(scans, tmp_path):
    data = load(scans)
    assert data.inputs.shape == (80, 1, 28, 28)
    assert data.class_names == ("benign", "malignant")
    assert data.parts == {"train": 60, "test": 20}
    levels = [data.inputs[data.labels == k].double().mean().item() * 257 for k in (0, 1)]
    assert levels == pytest.approx([20_000, 40_000], rel=0.01)
    own = ["dataset=parquet", f"dataset.path={scans}", "num_clients=2", "partition=iid", "rounds=4"]
    rest = [word for word in TINY if not word.startswith(("dataset", "partition", "num_clients", "rounds", "local"))]
    learning = ["local_epochs=3", "optimizer.lr=0.05", "dataset.image_size=16", "dataset.mode=RGB"]
    rows = Recorder(run([*rest, *LIGHT, *own, *learning], tmp_path / "run")).rows()
    accuracies = [row["classifier"]["pooled"] for row in rows]
    assert accuracies[-1] >= max(0.7, accuracies[0] + 0.2)
