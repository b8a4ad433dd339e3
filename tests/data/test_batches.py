import pytest
import torch

from fedsaf.data.batches import ClientData, Normalise, batch_bounds


def sizes(n, batch_size, drop_last, min_remainder=2):
    bounds = batch_bounds(n, batch_size, drop_last, min_remainder)
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])][: len(bounds)]
    return [stop - start for start, stop in bounds]


@pytest.mark.parametrize(
    ("n", "batch_size", "keep", "drop", "strict"),
    [
        (0, 10, [], [], []),
        (1, 10, [1], [1], []),
        (9, 10, [9], [9], []),
        (10, 10, [10], [10], [10]),
        (11, 10, [11], [10], [10]),
        (12, 10, [10, 2], [10], [10]),
        (21, 10, [10, 11], [10, 10], [10, 10]),
        (3, 1, [1, 1, 1], [1, 1, 1], [1, 1, 1]),
    ],
)
def test_rules_of_the_last_batch(n, batch_size, keep, drop, strict):
    assert sizes(n, batch_size, False) == keep
    assert sizes(n, batch_size, True) == drop
    assert sizes(n, batch_size, "strict") == strict


def test_remainder_of_one_stays_where_it_does_no_harm():
    assert sizes(21, 10, False, min_remainder=1) == [10, 10, 1]
    assert sizes(23, 10, False, min_remainder=4) == [10, 13]


def test_bad_values():
    with pytest.raises(ValueError, match="batch_size=0"):
        batch_bounds(5, 0, False, 2)
    with pytest.raises(ValueError, match="drop_last='yes'"):
        batch_bounds(5, 5, "yes", 2)


@pytest.fixture
def client():
    images = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1).expand(20, 1, 2, 2).contiguous()
    return ClientData(images, torch.arange(20) * 10, torch.tensor([7, 3, 5, 1]), torch.tensor([0, 19]))


def test_training_batches_follow_the_order(client):
    batches = list(client.train_batches(2, torch.tensor([3, 0, 2, 1]), False, 2))
    assert [x[:, 0, 0, 0].tolist() for x, _ in batches] == [[1, 7], [5, 3]]
    assert [y.tolist() for _, y in batches] == [[10, 70], [50, 30]]
    assert batches[0][0].dtype == torch.uint8
    stored = [y.tolist() for _, y in client.train_batches(3, None, False, 2)]
    assert stored == [[70, 30, 50, 10]]


def test_evaluation_drops_nothing(client):
    assert [y.tolist() for _, y in client.eval_batches("train", 3)] == [[70, 30, 50], [10]]
    assert [y.tolist() for _, y in client.eval_batches("test", 3)] == [[0, 190]]
    assert (client.num_train, client.num_test) == (4, 2)
    with pytest.raises(ValueError, match="part='valid'"):
        next(client.eval_batches("valid", 3))


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5, 0.5, 0.5),) * 2, ((0.1, 0.2, 0.3), (0.5, 0.4, 0.3)), ((0.0,) * 3, (1.0,) * 3)]
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_normalise_by_the_definition(mean, std, layout):
    x = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    x = x.contiguous(memory_format=layout)
    given = x.clone()
    out = Normalise(mean, std)(x)
    expected = (x.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(out, expected.float(), atol=1e-6, rtol=0)
    assert out.dtype == torch.float32
    assert out.is_contiguous(memory_format=layout)
    assert torch.equal(x, given)
