import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from fedsaf.data.partition.splits import ordered_split, random_split, stratified_split

SPLITS = [stratified_split, random_split]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.75, 0.95])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 17, 200])
def test_disjoint_complete_and_never_without_training(split, fraction, n):
    labels = np.random.default_rng(n).integers(0, 5, n)
    train, test = split(labels, fraction, np.random.default_rng(0))
    assert sorted([*train, *test]) == list(range(n))
    assert len(train) >= min(n, 2)


@pytest.mark.parametrize("split", SPLITS)
def test_one_and_two_samples_train_whole(split):
    for n in (1, 2):
        train, test = split(np.zeros(n, int), 0.75, np.random.default_rng(0))
        assert (len(train), len(test)) == (n, 0)


@pytest.mark.parametrize("seed", range(20))
def test_stratified_tests_only_on_classes_it_trains_on(seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice(8, 40, p=rng.dirichlet(np.full(8, 0.3)))
    train, test = stratified_split(labels, 0.75, rng)
    assert set(labels[test]) <= set(labels[train])
    counts = np.bincount(labels, minlength=8)
    tested = np.bincount(labels[test], minlength=8)
    assert (tested[counts == 1] == 0).all()
    assert (np.abs(tested - counts * 0.25)[counts > 1] < 1).all()


def test_stratified_by_hand():
    labels = np.repeat([0, 1, 2, 3], [8, 4, 2, 1])
    _, test = stratified_split(labels, 0.75, np.random.default_rng(0))
    # 14 samples are in classes of two and more: 14 - 10 = 4 test, exact shares 2, 1, 0.5
    assert np.bincount(labels[test], minlength=4).tolist() == [2, 1, 1, 0]


def test_random_split_is_that_of_scikit_learn():
    for n in (4, 101, 1621):
        train, test = random_split(np.zeros(n, int), 0.75, np.random.RandomState(1))
        theirs = train_test_split(np.arange(n), train_size=0.75, shuffle=True, random_state=np.random.RandomState(1))
        assert train.tolist() == theirs[0].tolist()
        assert test.tolist() == theirs[1].tolist()


@pytest.mark.parametrize(("n", "test_starts"), [(1000, 979), (800, 799), (790, None), (1, None)])
def test_windows_of_train_and_test_share_no_character(n, test_starts):
    """Window i covers characters i to i + 79 and its target i + 80."""
    train, test = ordered_split(n, 0.9, 79)
    assert train.tolist() == list(range(int(0.9 * n)))
    assert test.tolist() == ([] if test_starts is None else list(range(test_starts, n)))
    if len(test):
        assert train[-1] + 79 < test[0]
