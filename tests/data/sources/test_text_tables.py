"""Tables of texts as users have them, and the real samples of the named sets."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsaf.data.federated import federate
from fedsaf.data.partition.group_shift import ByDomain
from fedsaf.data.sources.text_tables import Csv, HubTexts
from tests.data.recipe import source_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "vocabularies"))


def table(path, **options):
    return source_of(Csv, path=path, **options)


def write(path, content, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(encoding))
    return path


def test_csv_of_a_spreadsheet(tmp_path):
    rows = 'Text;Label\r\n"One; two\r\nthree ""four""";good\r\nfünf;bad\r\n'
    samples = table(write(tmp_path / "mine.csv", rows, "utf-8-sig")).load(1)
    assert samples.name == "mine"
    assert samples.texts == ['One; two\r\nthree "four"', "fünf"]
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


def test_texts_that_begin_with_a_quotation_mark_are_all_read_from_a_tsv(tmp_path):
    texts = [('"' if i in (40, 90) else "") + f"text {i}" for i in range(200)]
    for column in (0, 1):
        rows = [(text, str(i % 2))[:: 1 - 2 * column] for i, text in enumerate(texts)]
        head = ("text", "label")[:: 1 - 2 * column]
        file = write(tmp_path / f"{column}.tsv", "".join("\t".join(row) + "\n" for row in (head, *rows)))
        assert list(table(file).load(1).texts) == texts
    assert table(write(tmp_path / "end.tsv", 'text\tlabel\n"a\t0\nb"\t1\n')).load(1).texts == ['"a', 'b"']
    quoted = write(tmp_path / "quoted.tsv", 'text\tlabel\n"two\nlines, ""one"" value"\t0\nb\t1\n')
    assert table(quoted).load(1).texts == ['two\nlines, "one" value', "b"]


@pytest.mark.parametrize("rows", ['"a,0\nb,1\n', '"a,0\n"b,1\n', 'a,0\n"b" c,1\n'])
def test_a_quotation_mark_that_swallows_rows_of_a_csv_is_named_by_line(tmp_path, rows):
    with pytest.raises(ValueError, match=r"a\.csv, line \d: .*begins with a quotation mark has to end with one"):
        table(write(tmp_path / "a.csv", "text,label\n" + rows)).load(1)


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
        (tmp_path / "empty", "holds no table that can be read: .csv"),
        (tmp_path / "mixed", "several kinds, .csv, .jsonl"),
        (tmp_path / "array.json", "one JSON array"),
        (tmp_path / "broken.jsonl", "one JSON object per line"),
        (tmp_path / "notes.doc", "none of the files that can be read"),
        (tmp_path / "broken.parquet", "not a readable parquet"),
    ]:
        with pytest.raises(ValueError, match=message):
            table(path).load(1)


# --- real samples ----------------------------------------------------------------------------------------------------


def real(name, **options):
    root = os.environ.get("DATA_ROOT")
    if not root or not (Path(root) / name / "train.parquet").is_file():
        pytest.skip(f"DATA_ROOT has no {name}")
    return source_of(HubTexts, name=name, **options).load(1)


def test_real_ag_news():
    samples = real("ag_news", max_length=200, vocabulary_size=32000)
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


def test_real_amazon_review_by_domain():
    options = {"text_column": ["title", "text"], "group_column": "domain", "max_samples": 800}
    samples = real("amazon_review", form="counts", max_length=None, vocabulary_size=5000, **options)
    assert samples.class_names == ("negative", "positive")
    assert samples.group_names == ("books", "dvd", "electronics", "kitchen")
    federated = federate(samples, ByDomain(seed=1, generator="numpy", clients_per_domain=1), 4, "random", 0.75)
    data = federated.dataset
    assert data.inputs.shape == (800, 5000)
    assert federated.record.facts["vocabulary"]["size"] == 5000
    train = data.inputs[np.concatenate(federated.record.train)].sum(0, dtype=torch.int64)
    assert (train[:-1] >= train[1:]).all()
