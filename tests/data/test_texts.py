"""Texts of a source: what is learnt from them and from which, and what the partition reads."""

import numpy as np
import pytest
import torch

from fedsaf.data.federated import federate
from fedsaf.data.partition.quantity_shift import IID
from fedsaf.data.sources.text_tables import Csv
from fedsaf.data.vocabulary import words_hash
from tests.data.recipe import source_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "vocabularies"))


def table(path, **options):
    return source_of(Csv, path=path, **options)


def write(path, content):
    path.write_text(content)
    return path


@pytest.fixture
def six(tmp_path):
    rows = ["the cat,a", "the dog,b", "the emu,a", "a gnu,b", "a cat,a", "the end,b"]
    return write(tmp_path / "six.csv", "\n".join(["text,label", *rows]))


def test_vocabulary_knows_training_texts_only(six):
    samples = table(six).load(1)
    data = samples.fitted(np.array([1, 0]))
    assert data.vocabulary == ("[PAD]", "[UNK]", "[CLS]", "the", "cat", "dog")
    assert data.inputs.tolist() == [
        [2, 3, 4, 0, 0, 0],
        [2, 3, 5, 0, 0, 0],
        [2, 3, 1, 0, 0, 0],
        [2, 1, 1, 0, 0, 0],
        [2, 1, 4, 0, 0, 0],
        [2, 3, 1, 0, 0, 0],
    ]
    assert data.inputs.dtype == torch.uint8
    assert data.learnt["vocabulary"] == {"from": "train", "size": 6, "sha256": words_hash(data.vocabulary)}
    everything = table(six, vocabulary_from="all").load(1).fitted(np.array([1, 0]))
    assert (everything.inputs != 1).all()
    assert everything.learnt["vocabulary"]["from"] == "all"
    assert samples.fitted(np.array([0, 1])).vocabulary == data.vocabulary
    assert samples.fitted(np.array([0, 2])).vocabulary != data.vocabulary


def test_what_the_partition_reads_stays_as_it_was(six):
    samples = table(six).load(1)
    data = samples.fitted(np.arange(3))
    for name in ("name", "class_names", "group_names", "label_mapping", "parts", "fingerprint", "own_split", "files"):
        assert getattr(data, name) == getattr(samples, name)
    assert torch.equal(data.labels, samples.labels)
    assert samples.fingerprint == table(six).load(2).fingerprint
    assert samples.fingerprint != table(six, max_samples=4).load(1).fingerprint


def test_fingerprint_sees_texts_their_bounds_and_labels(tmp_path):
    contents = ["ab,0\nc,1", "a,0\nbc,1", "ab,1\nc,0", "ab,0\nc,1\nd,1"]
    files = [write(tmp_path / f"{i}.csv", f"text,label\n{rows}\n") for i, rows in enumerate(contents)]
    assert len({table(file).load(1).fingerprint for file in files}) == 4


def test_federated_texts_learn_from_every_clients_training_part(six):
    rule = IID(seed=1, generator="numpy")
    federated = federate(table(six).load(1), rule, 2, "random", 0.5)
    train = np.sort(np.concatenate(federated.record.train))
    assert 0 < len(train) < 6
    again = table(six).load(1).fitted(train)
    assert federated.dataset.vocabulary == again.vocabulary
    assert federated.record.facts["vocabulary"] == again.learnt["vocabulary"]
    x, y = next(federated.client(0).eval_batches("train", 10))
    assert torch.equal(x, again.inputs[federated.record.train[0]])
    assert torch.equal(y, again.labels[federated.record.train[0]])


def test_counts(six):
    data = table(six, form="counts", max_length=None, vocabulary_size=2).load(1).fitted(np.arange(6))
    assert data.vocabulary == ("the", "a")
    assert data.inputs.tolist() == [[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [1, 0]]
    assert data.facts.dim == 2


def test_subsets_of_one_size_share_no_text(six):
    parts = [table(six, max_samples=2).load(1, subset=number) for number in range(3)]
    assert sorted(text for part in parts for text in part.texts) == sorted(table(six).load(1).texts)
    assert all(part.labels.bincount().tolist() == [1, 1] for part in parts)
    with pytest.raises(ValueError, match=r"validation.subset=3: only 3 disjoint subsets"):
        table(six, max_samples=2).load(1, subset=3)


def test_subset_is_balanced_and_keyed(six):
    samples = table(six, max_samples=4).load(1)
    assert samples.labels.bincount().tolist() == [2, 2]
    assert samples.parts == {"six": 4}
    assert federate(samples, IID(seed=1, generator="numpy"), 2, "random", 0.75).record.facts["subset"] == {
        "max_samples": 4,
        "of": 6,
    }
    whole = table(six).load(1)
    assert whole.subset == table(six, max_samples=6).load(1).subset == {}
    kept = [whole.texts.index(text) for text in samples.texts]
    assert kept == sorted(kept)
    assert (whole.labels[kept] == samples.labels).all()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"form": "token"}, "form='token' is unknown; choose tokens or counts"),
        ({"vocabulary_from": "test"}, "vocabulary_from='test' is unknown; choose train or all"),
        ({"max_length": 1}, "max_length=1"),
        ({"vocabulary_size": 2}, "vocabulary_size=2"),
        ({"max_samples": 1}, "max_samples=1"),
    ],
)
def test_impossible_options_are_named(six, options, named):
    with pytest.raises(ValueError, match=named):
        table(six, **options).load(1)


def test_empty_texts_are_padding_and_counted(tmp_path, caplog):
    file = write(tmp_path / "a.csv", 'text,label\nhi,0\n,1\n"  ",0\n')
    samples = table(file).load(1)
    assert "2 of 3 texts are empty, the first in row 1" in caplog.text
    assert samples.fitted(np.arange(3)).inputs.tolist() == [[2, 3, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]]
    assert "dataset a: 'hi' is the only word that is known" in caplog.text
    with pytest.raises(ValueError, match="dataset a: no word in any of the 2 texts"):
        samples.fitted(np.array([1, 2]))
    with pytest.raises(ValueError, match="all 2 texts are empty"):
        table(write(tmp_path / "b.csv", "text,label\n,0\n,1\n"), text_column="text").load(1)
