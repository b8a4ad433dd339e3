import pytest
import torch

from fedsaf.core.types import Upload


@pytest.fixture
def upload():
    """Build one client's upload from {class: (mean, count)}."""

    def make(client, rows, d=2):
        labels = sorted(rows)
        means = [rows[label][0] for label in labels]
        return Upload(
            client,
            {
                "labels": torch.tensor(labels, dtype=torch.int64),
                "values": torch.tensor(means, dtype=torch.float32).reshape(len(labels), d),
                "counts": torch.tensor([rows[label][1] for label in labels], dtype=torch.int64),
            },
            num_samples=sum(count for _, count in rows.values()),
        )

    return make
