from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

COMMON = {
    "image_size": None,
    "mode": "auto",
    "max_samples": None,
    "max_per_class": None,
    "frozen_crop": False,
    "memory_limit_gib": 4,
    "mean": 0.5,
    "std": 0.5,
}
TABLE = {"splits": None, "image_column": None, "label_column": None, "group_column": None}


def png(level: int, size: int = 8, mode: str = "RGB") -> bytes:
    """A PNG whose pixels all have one level in its first channel."""
    array = np.zeros((size, size, 3), np.uint8)
    array[..., 0] = level
    file = BytesIO()
    Image.fromarray(array).convert(mode).save(file, "png")
    return file.getvalue()


@pytest.fixture
def common() -> dict:
    return dict(COMMON)


@pytest.fixture
def table_options() -> dict:
    return {**COMMON, **TABLE}


@pytest.fixture
def make_png():
    return png


@pytest.fixture
def write_parquet():
    """Write columns to a parquet file; ``features`` adds Hugging Face metadata, without it the file is plain."""

    def write(path, columns: dict, features: dict | None = None):
        import datasets

        path.parent.mkdir(parents=True, exist_ok=True)
        if features is None:
            pq.write_table(pa.table(columns), path)
            return path
        kinds = {"image": datasets.Image(), "text": datasets.Value("string"), "int": datasets.Value("int64")}
        declared = {
            column: datasets.ClassLabel(names=kind) if isinstance(kind, list) else kinds[kind]
            for column, kind in features.items()
        }
        schema = datasets.Features(declared).arrow_schema
        pq.write_table(pa.table(columns, schema=schema), path)
        return path

    return write
