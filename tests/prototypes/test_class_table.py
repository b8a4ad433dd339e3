import pytest
import torch

from fedsaf.core.types import Upload
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs


def table():
    values = torch.arange(8.0).reshape(4, 2)
    mask = torch.tensor([True, False, True, True])
    return ClassTable(
        values * mask[:, None], mask, torch.tensor([3, 0, 1, 2]), torch.tensor([True, False, False, True])
    )


def test_a_message_holds_the_rows_that_exist_and_gives_the_table_back():
    message = table().to_message()
    assert message["labels"].tolist() == [0, 2, 3]
    assert message["values"].tolist() == [[0, 1], [4, 5], [6, 7]]
    assert message["counts"].tolist() == [3, 1, 2]
    back = ClassTable.from_message(message | {"scale": torch.ones(1)}, num_classes=4, device="cpu")
    for name in ("values", "mask", "counts", "seen"):
        assert torch.equal(getattr(back, name), getattr(table(), name)), name


def test_what_nobody_knows_does_not_travel():
    message = ClassTable.full(torch.ones(2, 1)).to_message()
    assert sorted(message) == ["labels", "values"]
    back = ClassTable.from_message(message, 2, "cpu")
    assert back.counts is None
    assert back.seen is None
    assert torch.equal(back.answerable, back.mask)


def test_without_a_row_a_server_says_nothing_and_a_client_that_it_has_none():
    nothing = ClassTable.empty(3, 2)
    assert nothing.to_broadcast() is None
    assert nothing.to_message()["values"].shape == (0, 2)


def test_only_classes_that_somebody_uploaded_are_answerable():
    assert table().answerable.tolist() == [True, False, False, True]


def test_gradient_of_a_scattered_row_is_that_of_the_row():
    rows = torch.randn(2, 3, requires_grad=True)
    whole = ClassTable.of_rows(torch.tensor([1, 3]), rows, 5)
    slope = torch.randn(5, 3)
    (whole.values * slope).sum().backward()
    assert torch.equal(rows.grad, slope[[1, 3]])


def upload(client, labels, values, **more):
    parts = {"labels": torch.tensor(labels), "values": torch.tensor(values), **more}
    return Upload(client, parts, 1)


def test_pairs_stand_in_the_order_of_clients():
    uploads = [upload(7, [1], [[5.0]]), upload(2, [0, 1], [[1.0], [2.0]])]
    pairs = uploaded_pairs(uploads, num_classes=2, width=1)
    assert pairs.labels.tolist() == [0, 1, 1]
    assert pairs.values.tolist() == [[1], [2], [5]]
    assert pairs.counts is None
    assert [len(part) for part in uploaded_pairs([], 2, 1)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("labels", "values", "error", "message"),
    [
        ([2], [[1.0]], ValueError, r"client 3 must lie in \[0, 2\), got \[2\]"),
        ([0], [[1.0, 2.0]], ValueError, r"client 3 must be \(1, 1\), got \(1, 2\)"),
        ([0], [[float("inf")]], FloatingPointError, "client 3 hold NaN or Inf"),
    ],
)
def test_a_malformed_upload_names_its_client(labels, values, error, message):
    with pytest.raises(error, match=message):
        uploaded_pairs([upload(3, labels, values)], 2, 1)
