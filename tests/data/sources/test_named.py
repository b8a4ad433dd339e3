"""Sets by name, of images and of texts: every place where one may lie, and what is said if none has it."""

import time

import pytest

from fedsaf.data.sources import named
from fedsaf.data.sources.image_tables import HubImages
from fedsaf.data.sources.text_tables import HubTexts
from tests.data.recipe import images, source_of

COLUMNS = {
    HubImages: ({"img": images(1, 2), "label": [0, 1]}, {"img": "image", "label": ["good", "bad"]}),
    HubTexts: ({"text": ["a b", "c d"], "label": [0, 1]}, {"text": "text", "label": ["good", "bad"]}),
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """Neither a data root, nor a cache, nor a hub."""
    import datasets
    from huggingface_hub import HfApi

    def unreachable(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "no cache"))
    monkeypatch.setattr(HfApi, "dataset_info", unreachable)


@pytest.fixture(params=COLUMNS, ids=["images", "texts"])
def kind(request):
    return request.param


def load(kind, **options):
    return source_of(kind, **{"name": "tiny", "hub_id": "nobody/tiny-set", **options}).load(1)


def write_two_parts(kind, folder, write_parquet):
    return {part: str(write_parquet(folder / f"{part}.parquet", *COLUMNS[kind])) for part in ("train", "test")}


def test_path_goes_before_a_filled_data_root(kind, tmp_path, write_parquet, monkeypatch):
    write_two_parts(kind, tmp_path / "tiny", write_parquet)
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    data = load(kind, splits=["train", "test"])
    assert (data.name, data.parts, data.class_names) == ("tiny", {"train": 2, "test": 2}, ("good", "bad"))
    other = write_parquet(tmp_path / "other" / "whatever.parquet", *COLUMNS[kind])
    assert load(kind, path=other).parts == {"whatever": 2}


def test_filled_cache_is_used_without_asking_the_hub(kind, tmp_path, write_parquet, cached_copy):
    asked = cached_copy("nobody", "tiny-set", write_two_parts(kind, tmp_path, write_parquet))
    data = load(kind, splits=["train", "test"])
    assert data.parts == {"train": 2, "test": 2}
    assert data.class_names == ("good", "bad")
    content = data.texts if kind is HubTexts else data.inputs[:, 0, 0, 0].tolist()
    assert content == (["a b", "c d"] * 2 if kind is HubTexts else [1, 2] * 2)
    assert [file.name for file in data.files] == ["tiny-set-train.arrow", "tiny-set-test.arrow"]
    assert asked == []


def test_no_network_fails_at_once_with_three_ways(monkeypatch):
    with pytest.raises(ValueError, match="no route") as caught:
        load(HubImages)
    for way in ("$DATA_ROOT/tiny/", "dataset.path=", "$HF_HOME"):
        assert way in str(caught.value)


def test_silent_network_is_given_up(monkeypatch):
    from huggingface_hub import HfApi

    monkeypatch.setattr(HfApi, "dataset_info", lambda *_, **__: time.sleep(20))
    monkeypatch.setattr(named, "_ANSWER_SECONDS", 0.1)
    start = time.perf_counter()
    with pytest.raises(ValueError, match="no answer in time"):
        load(HubImages)
    assert time.perf_counter() - start < 5


def test_a_set_that_the_hub_lacks_names_the_other_ways_without_asking(kind):
    with pytest.raises(ValueError, match="no copy on the hub is known") as caught:
        load(kind, hub_id=None)
    for way in ("$DATA_ROOT/tiny/", "dataset.path=", "dataset.hub_id="):
        assert way in str(caught.value)
