import shutil
import time

import pytest

from fedsaf.data.sources.image_tables import HubImages


@pytest.fixture
def source(table_options):
    options = {**table_options, "splits": ["train", "test"], "path": None}
    return HubImages(name="tiny", hub_id="nobody/tiny-images", **options)


@pytest.fixture
def columns(make_png):
    return {"img": [{"bytes": make_png(v), "path": None} for v in (1, 2)], "label": [0, 1]}


KINDS = {"img": "image", "label": ["a", "b"]}


def test_filled_data_root_is_used(source, columns, write_parquet, tmp_path, monkeypatch):
    write_parquet(tmp_path / "tiny" / "train.parquet", columns, KINDS)
    write_parquet(tmp_path / "tiny" / "test.parquet", columns, KINDS)
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    data = source.load(1)
    assert data.name == "tiny"
    assert data.parts == {"train": 2, "test": 2}


def test_path_goes_before_data_root(table_options, columns, write_parquet, tmp_path, monkeypatch):
    write_parquet(tmp_path / "tiny" / "train.parquet", columns, KINDS)
    other = write_parquet(tmp_path / "other" / "whatever.parquet", columns, KINDS)
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    data = HubImages(name="tiny", hub_id="nobody/tiny", **{**table_options, "path": str(other)}).load(1)
    assert data.parts == {"whatever": 2}


def test_no_network_fails_at_once_with_three_ways(source, tmp_path, monkeypatch):
    import datasets
    from huggingface_hub import HfApi

    def unreachable(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setattr(HfApi, "dataset_info", unreachable)
    start = time.perf_counter()
    with pytest.raises(ValueError, match="no route") as caught:
        source.load(1)
    assert time.perf_counter() - start < 2
    for way in ("$DATA_ROOT/tiny/", "dataset.path=", "$HF_HOME"):
        assert way in str(caught.value)


def test_silent_network_is_given_up(source, tmp_path, monkeypatch):
    import datasets
    from huggingface_hub import HfApi

    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setattr(HfApi, "dataset_info", lambda *_, **__: time.sleep(20))
    start = time.perf_counter()
    with pytest.raises(ValueError, match="no answer in time"):
        source.load(1)
    assert time.perf_counter() - start < 5


def test_filled_cache_is_used_without_asking_the_hub(source, columns, write_parquet, tmp_path, monkeypatch):
    import datasets
    from huggingface_hub import HfApi

    asked = []
    files = {p: str(write_parquet(tmp_path / f"{p}.parquet", columns, KINDS)) for p in ("train", "test")}
    cache = tmp_path / "cache"
    datasets.load_dataset_builder("parquet", data_files=files, cache_dir=str(cache)).download_and_prepare()
    made = next(cache.rglob("dataset_info.json")).parent
    home = cache / "nobody___tiny-images" / "default" / made.parts[-2] / "abc"
    shutil.copytree(made, home)
    for part in ("train", "test"):
        (home / f"parquet-{part}.arrow").rename(home / f"tiny-images-{part}.arrow")

    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache))
    monkeypatch.setattr(HfApi, "dataset_info", lambda *args, **_: asked.append(args))
    data = source.load(1)
    assert data.parts == {"train": 2, "test": 2}
    assert data.inputs[:, 0, 0, 0].tolist() == [1, 2, 1, 2]
    assert asked == []


def test_a_set_that_the_hub_lacks_names_the_other_ways(table_options, tmp_path, monkeypatch):
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    source = HubImages(name="tiny", hub_id=None, **{**table_options, "path": None})
    with pytest.raises(ValueError, match="no copy on the hub is known") as caught:
        source.load(1)
    for way in ("$DATA_ROOT/tiny/", "dataset.path="):
        assert way in str(caught.value)


def test_domains_that_the_hub_numbers_come_in_alphabetical_order(table_options, write_parquet, make_png, tmp_path):
    """DomainNet's copy declares its domains as a class label; the order of the numbers is not the papers' order."""
    rows = {"image": [{"bytes": make_png(i), "path": None} for i in range(4)], "label": [0, 1, 0, 1]}
    kinds = {"image": "image", "label": ["ant", "bat"], "domain": ["sketch", "real", "clipart", "unused"]}
    write_parquet(tmp_path / "train.parquet", {**rows, "domain": [0, 1, 2, 0]}, kinds)
    options = {**table_options, "path": str(tmp_path), "group_column": "domain"}
    data = HubImages(name="domains", hub_id=None, **options).load(1)
    assert data.group_names == ("clipart", "real", "sketch")
    assert data.groups.tolist() == [2, 1, 0, 2]
    assert data.class_names == ("ant", "bat")
