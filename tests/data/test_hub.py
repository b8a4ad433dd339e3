import shutil
import time

import pytest

from fedsaf.data.hub import HubImages


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
    assert data.images[:, 0, 0, 0].tolist() == [1, 2, 1, 2]
    assert asked == []
