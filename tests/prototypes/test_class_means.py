import numpy as np
import pytest
import torch

from fedsaf.prototypes.class_means import ClassMeans, class_means


def batches(seed=0, num_classes=7, sizes=(5, 1, 8), offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    for size in sizes:
        yield (
            torch.randn(size, 3, generator=generator) + offset,
            torch.randint(1, num_classes - 1, (size,), generator=generator),
        )


def by_loop(z, y):
    groups = {}
    for row, label in zip(z.double().numpy(), y.tolist(), strict=True):
        groups.setdefault(label, []).append(row)
    return {label: (np.mean(rows, axis=0), len(rows)) for label, rows in sorted(groups.items())}


def assert_equal_to_loop(table, z, y):
    expected = by_loop(z, y)
    assert table.labels.tolist() == list(expected)
    assert table.counts[table.mask].tolist() == [count for _, count in expected.values()]
    np.testing.assert_allclose(table.rows.numpy(), [mean for mean, _ in expected.values()], rtol=1e-6, atol=1e-6)


def test_class_means_against_a_loop():
    z, y = next(batches(sizes=(30,)))
    assert_equal_to_loop(class_means(z, y, 7), z, y)


def test_stream_equals_the_whole():
    stream, parts = ClassMeans(7, 3), list(batches())
    for z, y in parts:
        stream.add(z, y)
    z, y = (torch.cat(part) for part in zip(*parts, strict=True))
    table = stream.compute()
    assert_equal_to_loop(table, z, y)
    assert (table.labels.dtype, table.counts.dtype) == (torch.int64, torch.int64)
    assert table.rows.dtype == torch.float32


def test_long_stream_on_a_large_offset_keeps_its_digits():
    # 2000 batches of ones around 1e4: a float32 sum would have lost the fraction.
    stream = ClassMeans(1, 1)
    for _ in range(2000):
        stream.add(torch.full((1, 1), 10_000.25), torch.tensor([0]))
    assert stream.compute().rows.item() == 10_000.25


def test_gradient_is_shared_by_the_samples_of_a_class():
    z = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    class_means(z, torch.tensor([5, 0, 5, 5]), 6).values.sum().backward()
    torch.testing.assert_close(z.grad[:, 0], torch.tensor([1 / 3, 1, 1 / 3, 1 / 3], dtype=torch.float64))


def test_no_sample():
    for table in (
        class_means(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), 5),
        ClassMeans(5, 3).compute(),
    ):
        assert table.labels.shape == (0,)
        assert table.rows.shape == (0, 3)
        assert table.counts.tolist() == [0] * 5


@pytest.mark.parametrize("bad", [-1, 5])
def test_label_out_of_range_is_named(bad):
    y = torch.tensor([0, bad])
    for take in (lambda: class_means(torch.zeros(2, 3), y, 5), lambda: ClassMeans(5, 3).add(torch.zeros(2, 3), y)):
        with pytest.raises(ValueError, match=rf"\[0, 5\), got \[{bad}\]"):
            take()


def test_nan_is_refused():
    stream = ClassMeans(5, 2)
    stream.add(torch.tensor([[1.0, 1.0], [float("nan"), 0.0]]), torch.tensor([0, 3]))
    with pytest.raises(FloatingPointError, match="class means: NaN"):
        stream.compute()


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_full(half):
    z, y = next(batches(sizes=(40,), offset=100.0))
    z = z.to(half)
    stream = ClassMeans(7, 3)
    with torch.autocast("cpu", dtype=half):
        table = class_means(z, y, 7)
        stream.add(z, y)
    assert table.rows.dtype == torch.float32
    assert_equal_to_loop(table, z, y)
    assert_equal_to_loop(stream.compute(), z, y)


def test_stream_keeps_no_graph():
    stream, z = ClassMeans(2, 2), torch.ones(2, 2, requires_grad=True)
    stream.add(z, torch.tensor([0, 1]))
    assert not stream.compute().values.requires_grad
