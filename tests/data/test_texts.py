import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsaf.data.federated import federate
from fedsaf.data.partition.group_shift import ByDomain
from fedsaf.data.partition.quantity_shift import IID
from fedsaf.data.sources.folders import TextFolder
from fedsaf.data.sources.text_tables import Csv, HubTexts
from fedsaf.data.vocabulary import words_hash

COMMON = {
    "form": "tokens",
    "max_length": 6,
    "vocabulary_size": None,
    "vocabulary_from": "train",
    "max_samples": None,
}
TABLE = {"path": None, "splits": None, "text_column": None, "label_column": None, "group_column": None}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "vocabularies"))
    monkeypatch.delenv("DATA_ROOT", raising=False)


def table(path, **options):
    return Csv(**{**COMMON, **TABLE, "path": path and str(path), **options})


def hub(**options):
    return HubTexts(**{**COMMON, **TABLE, "name": "tiny", "hub_id": "nobody/tiny-texts", **options})


def write(path, content, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(encoding))
    return path


def words_of(samples, rows=None):
    data = samples.fitted(np.arange(len(samples)) if rows is None else np.array(rows))
    return [[data.vocabulary[i] for i in row if i not in (0, 2)] for row in data.inputs.tolist()]


# --- what is learnt, and from what -----------------------------------------------------------------------------------


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
    for name in ("name", "class_names", "group_names", "label_mapping", "parts", "fingerprint", "own_split"):
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


# --- tables ----------------------------------------------------------------------------------------------------------


def test_csv_of_a_spreadsheet(tmp_path):
    rows = 'Text;Label\r\n"One; two\r\nthree ""four""";good\r\nfünf;bad\r\n'
    samples = table(write(tmp_path / "mine.csv", rows, "utf-8-sig")).load(1)
    assert samples.name == "mine"
    assert words_of(samples) == [["one", "two", "three", "four"], ["fünf"]]
    assert samples.class_names == ("bad", "good")
    assert samples.labels.tolist() == [1, 0]


def test_row_numbers_of_pandas_are_no_column(tmp_path):
    samples = table(write(tmp_path / "a.csv", ",text,stars\n0,good,5\n1,bad,1\n2,fine,5\n")).load(1)
    assert samples.label_mapping == {"1": 0, "5": 1}
    assert samples.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize("suffix", [".tsv", ".tab", ".jsonl", ".ndjson", ".parquet"])
def test_every_kind_of_table_reads_the_same(tmp_path, suffix, write_parquet):
    texts, labels = ["One, two", "three"], ["x", "y"]
    file = tmp_path / f"a{suffix}"
    if suffix in (".tsv", ".tab"):
        write(file, "text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in zip(texts, labels, strict=True)))
    elif suffix == ".parquet":
        write_parquet(file, {"text": texts, "label": labels})
    else:
        rows = [{"text": t, "label": y, "extra": [1]} for t, y in zip(texts, labels, strict=True)]
        write(file, "\n".join(map(json.dumps, rows)))
    samples = table(file).load(1)
    assert list(samples.texts) == texts
    assert samples.labels.tolist() == [0, 1]


def test_long_rows_are_read(tmp_path):
    text = "long " * 1_000_000
    assert table(write(tmp_path / "a.csv", f'text,label\n"{text}",0\nb,1\n')).load(1).texts[0] == text
    rows = "\n".join(json.dumps({"text": t, "label": y}) for t, y in ((text, 0), ("b", 1)))
    assert table(write(tmp_path / "a.jsonl", rows)).load(1).texts[0] == text


def test_folder_of_parts_is_pooled_train_first(tmp_path):
    for part in ("test", "train", "validation"):
        write(tmp_path / f"{part}.csv", f"text,label\n{part} one,0\n{part} two,1\n")
    samples = table(tmp_path).load(1)
    assert samples.parts == {"train": 2, "valid": 2, "test": 2}
    assert list(samples.texts)[::2] == ["train one", "validation one", "test one"]
    assert table(tmp_path, splits=["test"]).load(1).parts == {"test": 2}
    with pytest.raises(ValueError, match="none of these parts"):
        table(tmp_path, splits=["dev"]).load(1)


def test_columns_are_guessed_and_announced(tmp_path, caplog):
    file = write(tmp_path / "a.csv", "id,author,review,sentiment\n1,ann,it was good,pos\n2,bob,it was not,neg\n")
    with caplog.at_level("INFO"):
        samples = table(file).load(1)
    assert "text_column is 'review'" in caplog.text
    assert "label_column is 'sentiment'" in caplog.text
    assert samples.class_names == ("neg", "pos")
    samples = table(file, text_column="author", label_column="id", group_column="sentiment").load(1)
    assert list(samples.texts) == ["ann", "bob"]
    assert samples.label_mapping == {"1": 0, "2": 1}
    assert samples.group_names == ("neg", "pos")


def test_the_longest_texts_are_guessed_unless_it_is_close(tmp_path):
    rows = "one,two,label\na much longer text,short,0\nb is longer too,tiny,1\n"
    assert table(write(tmp_path / "a.csv", rows)).load(1).texts[0] == "a much longer text"
    with pytest.raises(ValueError, match=r"several columns fit \(one, two\); set dataset\.text_column"):
        table(write(tmp_path / "b.csv", "one,two,label\nsame,size,0\nmore,text,1\n")).load(1)


def test_several_text_columns_are_joined_and_missing_values_left_out(tmp_path):
    file = write(tmp_path / "a.csv", "title,text,label\nHead,body,0\n,only,1\nlone,,1\n")
    samples = table(file, text_column=["title", "text"]).load(1)
    assert list(samples.texts) == ["Head body", "only", "lone"]


@pytest.mark.parametrize(
    ("content", "options", "named"),
    [
        ("text,label\na,0\n", {"text_column": "body"}, r"text_column='body' is not a column .*text \(string\)"),
        ("text,label\na,0\n", {"text_column": "txt"}, "text_column='txt' is not a column .* the nearest is 'text'"),
        ("text,label\na,0\n", {"text_column": ["text", "body"]}, "text_column='body' is not a column"),
        ("text,label\na,0\n", {"text_column": []}, r"text_column=\[\]"),
        ("text,label\na,0\n", {"label_column": "klass"}, "label_column='klass' is not a column"),
        ("text,label\na,0\n", {"group_column": "user"}, "group_column='user' is not a column"),
        ("text,label\na,0\n", {"text_column": "label", "label_column": "text"}, "'label' holds int64, not text"),
        ("text,one,two\na,0,1\n", {}, r"several columns fit \(one, two\); set dataset.label_column"),
        ("number,label\n1.5,0\n", {}, "no column fits; set dataset.text_column"),
        ("text,label\na,0\nb,\n", {}, "labels missing: 1 of 2"),
        ("text,label\na,x\nb,\n", {}, "labels missing: 1 of 2"),
        ("text,label\na,0.5\nb,1.0\n", {"label_column": "label"}, "label 0.5 is neither"),
        ("text,label\na,0,9\n", {}, "is not a table with delimiter ','"),
        ("", {}, "is not a table"),
        ("text,label\n", {}, "a header and no row"),
        ("0,good words\n1,bad words\n0,more words\n", {}, "seems to lack a header.*'0'"),
        ("good words,pos\nbad words,neg\nmore,pos\n", {}, "seems to lack a header.*'pos'"),
        ("text,text\na,0\n", {}, "seems to lack a header.*'text'"),
        ("text,label\n" + "".join(f"t{i},{i}\n" for i in range(30)), {}, "30 different values in 30 rows"),
    ],
)
def test_bad_tables_are_named(tmp_path, content, options, named):
    with pytest.raises(ValueError, match=named):
        table(write(tmp_path / "a.csv", content), **options).load(1)


def test_labels_out_of_range_are_named(tmp_path, write_parquet):
    file = write_parquet(tmp_path / "a.parquet", {"text": ["a", "b"], "label": [0, 2]})
    declared = write_parquet(
        tmp_path / "b.parquet", {"text": ["a"], "label": [0]}, {"text": "text", "label": ["x", "y"]}
    )
    assert table(file).load(1).label_mapping == {"0": 0, "2": 1}
    assert table(declared).load(1).class_names == ("x", "y")
    import pyarrow.parquet as pq

    metadata = pq.read_schema(declared).metadata
    pq.write_table(pq.read_table(file).replace_schema_metadata(metadata), declared)
    with pytest.raises(ValueError, match="label 2 is not one of the 2 classes .* in row"):
        table(declared).load(1)


def test_parts_that_define_a_column_differently_are_refused(tmp_path):
    write(tmp_path / "train.csv", "text,label\na,0\n")
    write(tmp_path / "test.csv", "text,label\na,zero\n")
    with pytest.raises(
        ValueError, match=r"test.csv defines column 'label' differently from train.csv: as string, not int64"
    ):
        table(tmp_path).load(1)


@pytest.mark.parametrize(("suffix", "head"), [(".csv", "text,label\n"), (".jsonl", "")])
def test_bytes_that_are_no_text_are_named_by_line(tmp_path, suffix, head):
    rows = ["a,0", "é,1"] if head else ['{"text": "a", "label": 0}', '{"text": "é", "label": 1}']
    file = write(tmp_path / f"a{suffix}", head + "\n".join(rows), "latin-1")
    with pytest.raises(ValueError, match=rf"a{suffix}, line {2 + bool(head)}: byte 0xe9 is not UTF-8"):
        table(file).load(1)


def test_bytes_that_are_no_text_in_parquet_are_named_by_row(tmp_path, write_parquet):
    import pyarrow as pa

    raw = pa.array([b"fine", b"caf\xe9"], pa.binary())
    file = write_parquet(tmp_path / "a.parquet", {"text": raw.view(pa.string()), "label": [0, 1]})
    with pytest.raises(ValueError, match=r"a.parquet, row 1: column 'text' holds bytes that are not UTF-8"):
        table(file).load(1)


def test_bad_paths(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "mixed" / "a.csv", "text,label\na,0\n")
    write(tmp_path / "mixed" / "b.jsonl", "{}")
    write(tmp_path / "array.json", '[{"text": "a"}]')
    write(tmp_path / "broken.jsonl", '{"text": ')
    write(tmp_path / "notes.doc", "")
    write(tmp_path / "broken.parquet", "no parquet")
    for path, message in [
        (None, "path=null"),
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", "holds no table of texts: .csv"),
        (tmp_path / "mixed", "several kinds, .csv, .jsonl"),
        (tmp_path / "array.json", "one JSON array"),
        (tmp_path / "broken.jsonl", "one JSON object per line"),
        (tmp_path / "notes.doc", "none of the files that can be read"),
        (tmp_path / "broken.parquet", "not a readable parquet"),
    ]:
        with pytest.raises(ValueError, match=message):
            table(path).load(1)


# --- folder of files -------------------------------------------------------------------------------------------------


def folder(path, **options):
    return TextFolder(**{**COMMON, "path": path and str(path), "splits": None, **options})


def test_folder_with_parts_and_odd_files(tmp_path, caplog):
    root = tmp_path / "mail"
    write(root / "train" / "spam" / "1.txt", "Buy\nthis", "utf-8-sig")
    write(root / "train" / "ham" / "deep" / "2.TXT", "Dear friend")
    write(root / "test" / "ham" / "3.txt", "")
    write(root / "test" / "ham" / "notes.md", "no text")
    write(root / ".hidden" / "x.txt", "hidden")
    with caplog.at_level("INFO"):
        samples = folder(root).load(1)
    assert samples.name == "mail"
    assert words_of(samples) == [["dear", "friend"], ["buy", "this"], []]
    assert samples.labels.tolist() == [0, 1, 0]
    assert samples.label_mapping == {"ham": 0, "spam": 1}
    assert samples.parts == {"train": 2, "test": 1}
    assert "1 files that are no texts are skipped" in caplog.text
    assert folder(root / "train").load(1).parts == {"all": 2}
    assert folder(root, splits=["train"]).load(1).parts == {"train": 2}


def test_folder_errors(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        folder(tmp_path / "nowhere").load(1)
    with pytest.raises(ValueError, match="dataset.path=null: name a folder"):
        folder(None).load(1)
    write(tmp_path / "a" / "x.doc", "")
    with pytest.raises(ValueError, match=r"holds no text that ends in \.txt"):
        folder(tmp_path).load(1)
    file = write(tmp_path / "a" / "x.txt", "ok\ncafé", "latin-1")
    with pytest.raises(ValueError, match=rf"{file}, line 2: byte 0xe9"):
        folder(tmp_path).load(1)
    write(tmp_path / "stray.txt", "a")
    with pytest.raises(ValueError, match="stray.txt lies in no class folder"):
        folder(tmp_path).load(1)


# --- sets by name ----------------------------------------------------------------------------------------------------

KINDS = {"text": "text", "label": ["good", "bad"]}


@pytest.fixture
def two_parts(tmp_path, write_parquet):
    for part in ("train", "test"):
        columns = {"text": [f"{part} a", f"{part} b"], "label": [0, 1]}
        write_parquet(tmp_path / "root" / "tiny" / f"{part}.parquet", columns, KINDS)
    return tmp_path / "root"


def test_path_goes_before_data_root(two_parts, tmp_path, monkeypatch):
    monkeypatch.setenv("DATA_ROOT", str(two_parts))
    samples = hub(splits=["train", "test"]).load(1)
    assert (samples.name, samples.parts, samples.class_names) == ("tiny", {"train": 2, "test": 2}, ("good", "bad"))
    file = write(tmp_path / "other.csv", "text,label\na,0\nb,1\n")
    assert hub(path=str(file)).load(1).parts == {"other": 2}


def test_no_network_fails_at_once_with_three_ways(tmp_path, monkeypatch):
    import datasets
    from huggingface_hub import HfApi

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setattr(HfApi, "dataset_info", lambda *_, **__: time.sleep(20))
    start = time.perf_counter()
    with pytest.raises(ValueError, match="no answer in time") as caught:
        hub().load(1)
    assert time.perf_counter() - start < 5
    for way in ("$DATA_ROOT/tiny/", "dataset.path=", "$HF_HOME"):
        assert way in str(caught.value)


def test_set_without_a_hub_copy_says_so_without_asking(monkeypatch):
    from huggingface_hub import HfApi

    asked = []
    monkeypatch.setattr(HfApi, "dataset_info", lambda *args, **_: asked.append(args))
    with pytest.raises(ValueError, match="no copy on the hub is known") as caught:
        hub(hub_id=None).load(1)
    for way in ("$DATA_ROOT/tiny/", "dataset.path=", "dataset.hub_id="):
        assert way in str(caught.value)
    assert asked == []


def test_filled_cache_is_used_without_asking_the_hub(two_parts, tmp_path, monkeypatch):
    import datasets
    from huggingface_hub import HfApi

    asked = []
    files = {part: str(two_parts / "tiny" / f"{part}.parquet") for part in ("train", "test")}
    cache = tmp_path / "cache"
    datasets.load_dataset_builder("parquet", data_files=files, cache_dir=str(cache)).download_and_prepare()
    made = next(cache.rglob("dataset_info.json")).parent
    home = cache / "nobody___tiny-texts" / "default" / made.parts[-2] / "abc"
    shutil.copytree(made, home)
    for part in ("train", "test"):
        (home / f"parquet-{part}.arrow").rename(home / f"tiny-texts-{part}.arrow")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache))
    monkeypatch.setattr(HfApi, "dataset_info", lambda *args, **_: asked.append(args))
    samples = hub(splits=["train", "test"]).load(1)
    assert list(samples.texts) == ["train a", "train b", "test a", "test b"]
    assert samples.class_names == ("good", "bad")
    assert asked == []


# --- real samples ----------------------------------------------------------------------------------------------------


def real(name):
    root = os.environ.get("DATA_ROOT")
    if not root or not (Path(root) / name / "train.parquet").is_file():
        pytest.skip(f"DATA_ROOT has no {name}")
    return root


REAL_ROOT = os.environ.get("DATA_ROOT")


@pytest.fixture
def data_root(monkeypatch):
    if REAL_ROOT:
        monkeypatch.setenv("DATA_ROOT", REAL_ROOT)


def test_real_ag_news(data_root):
    real("ag_news")
    source = HubTexts(**{**COMMON, **TABLE, "max_length": 200, "vocabulary_size": 32000}, name="ag_news", hub_id=None)
    samples = source.load(1)
    assert samples.parts == {"train": 14547, "test": 7600}
    assert samples.class_names == ("World", "Sports", "Business", "Sci/Tech")
    assert samples.labels[:14547].bincount().tolist() == [3665, 3646, 3678, 3558]
    assert samples.labels[14547:].bincount().tolist() == [1900] * 4
    data = samples.fitted(np.arange(2000))
    assert data.inputs.shape == (22147, 200)
    assert data.inputs.dtype == torch.int16
    assert (data.inputs[:, 0] == 2).all()
    assert set(data.vocabulary[3:8]) <= {".", "the", ",", "to", "a", "of", "in"}
    assert (data.inputs[:2000] != 1).all()
    assert (data.inputs[2000:] == 1).any()


def test_real_amazon_review_by_domain(data_root):
    real("amazon_review")
    options = {**COMMON, **TABLE, "form": "counts", "max_length": None, "vocabulary_size": 5000}
    options |= {"text_column": ["title", "text"], "group_column": "domain", "max_samples": 800}
    samples = HubTexts(**options, name="amazon_review", hub_id=None).load(1)
    assert samples.class_names == ("negative", "positive")
    assert samples.group_names == ("books", "dvd", "electronics", "kitchen")
    federated = federate(samples, ByDomain(seed=1, generator="numpy", clients_per_domain=1), 4, "random", 0.75)
    data = federated.dataset
    assert data.inputs.shape == (800, 5000)
    assert federated.record.facts["vocabulary"]["size"] == 5000
    train = data.inputs[np.concatenate(federated.record.train)].sum(0, dtype=torch.int64)
    assert (train[:-1] >= train[1:]).all()
