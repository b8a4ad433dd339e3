import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def write_parquet():
    """Write columns to a parquet file; ``features`` adds Hugging Face metadata, without it the file is plain."""

    def write(path, columns: dict, features: dict | None = None):
        import datasets

        path.parent.mkdir(parents=True, exist_ok=True)
        schema = None
        if features is not None:
            kinds = {"image": datasets.Image(), "text": datasets.Value("string"), "int": datasets.Value("int64")}
            declared = {c: kinds.get(str(k)) or datasets.ClassLabel(names=k) for c, k in features.items()}
            schema = datasets.Features(declared).arrow_schema
        pq.write_table(pa.table(columns, schema=schema), path)
        return path

    return write


@pytest.fixture
def cached_copy(tmp_path, monkeypatch):
    """Fill a cache of the hub with parquet files of two parts, and count who asks the hub all the same."""

    def fill(owner: str, name: str, files: dict) -> list:
        import datasets
        from huggingface_hub import HfApi

        cache, asked = tmp_path / "cache", []
        builder = datasets.load_dataset_builder("parquet", data_files=files, cache_dir=str(cache))
        builder.download_and_prepare()
        made = next(cache.rglob("dataset_info.json")).parent
        home = cache / f"{owner}___{name}" / "default" / made.parts[-2] / "abc"
        home.parent.mkdir(parents=True)
        made.rename(home)
        for part in files:
            (home / f"parquet-{part}.arrow").rename(home / f"{name}-{part}.arrow")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache))
        monkeypatch.setattr(HfApi, "dataset_info", lambda *args, **_: asked.append(args))
        return asked

    return fill
