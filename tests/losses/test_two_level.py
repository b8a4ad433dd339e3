import pytest
import torch

from fedsaf.losses.alignment import GCSA, MSE, RCSA, Contrastive, Uniformity
from fedsaf.losses.coordinate import mse
from fedsaf.losses.two_level import InstanceLevel, PrototypeLevel, UniformityTerm
from fedsaf.prototypes.class_table import ClassTable

LEVELS = pytest.mark.parametrize("level", [PrototypeLevel, InstanceLevel])
RULES = pytest.mark.parametrize("missing_rows", ["skip", "self"])


class Spy:
    """A loss that keeps what it was given."""

    def __call__(self, rows, targets, labels, table):
        self.rows, self.targets, self.labels = rows, targets, labels
        return rows.sum()


def table_of(*existing, num_classes=5, d=2):
    mask = torch.zeros(num_classes, dtype=torch.bool)
    mask[list(existing)] = True
    values = 10.0 * torch.arange(num_classes * d).reshape(num_classes, d) * mask[:, None]
    return ClassTable(values, mask)


BATCH = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0], [7.0, 7.0]]), torch.tensor([3, 3, 1, 4])


def test_prototype_level_compares_batch_means_in_ascending_order(view_of):
    loss = Spy()
    PrototypeLevel(loss, "skip")(view_of(*BATCH, table_of(0, 1, 3)))
    assert loss.labels.tolist() == [1, 3]
    assert loss.rows.tolist() == [[0, 5], [2, 0]]
    assert loss.targets.tolist() == [[20, 30], [60, 70]]


def test_instance_level_compares_samples_in_their_order(view_of):
    loss = Spy()
    InstanceLevel(loss, "skip")(view_of(*BATCH, table_of(0, 1, 3)))
    assert loss.labels.tolist() == [3, 3, 1]
    assert loss.rows.tolist() == [[1, 0], [3, 0], [0, 5]]
    assert loss.targets.tolist() == [[60, 70], [60, 70], [20, 30]]


def test_self_makes_a_row_its_own_target(view_of):
    loss = Spy()
    PrototypeLevel(loss, "self")(view_of(*BATCH, table_of(0, 1, 3)))
    assert loss.labels.tolist() == [1, 3, 4]
    assert loss.rows.tolist() == [[0, 5], [2, 0], [7, 7]]
    assert loss.targets.tolist() == [[20, 30], [60, 70], [7, 7]]
    InstanceLevel(loss, "self")(view_of(*BATCH, table_of(0, 1, 3)))
    assert loss.targets.tolist() == [[60, 70], [60, 70], [20, 30], [7, 7]]


def test_self_changes_the_divisor_of_mse_and_no_direction(view_of):
    z, y = BATCH
    gradients = []
    for rule in ("skip", "self"):
        leaf = z.clone().requires_grad_()
        InstanceLevel(MSE("mean"), rule)(view_of(leaf, y, table_of(0, 1, 3))).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[0] * 3 / 4, gradients[1])
    assert gradients[1][3].tolist() == [0, 0]


def test_self_mixes_the_client_into_the_structure(view_of, draw):
    z, y, table = draw(8, 2, dtype=torch.float32), torch.arange(8) % 5, table_of(0, 1, 2, 3)
    skip, own = (InstanceLevel(GCSA(), rule)(view_of(z, y, table)).item() for rule in ("skip", "self"))
    assert abs(skip - own) > 1e-3


@RULES
def test_contrastive_has_no_positive_for_a_missing_class(view_of, missing_rows):
    z, y = BATCH
    leaf = z.clone().requires_grad_()
    InstanceLevel(Contrastive(0.5, False, "class"), missing_rows)(view_of(leaf, y, table_of(1, 2, 3))).backward()
    assert leaf.grad[3].tolist() == [0, 0]
    assert leaf.grad[0].abs().sum() > 0


@LEVELS
@RULES
def test_silent_without_prototypes(view_of, level, missing_rows):
    z, y = BATCH
    for table in (None, table_of(), table_of(0, 2)):
        value = level(MSE("mean"), missing_rows)(view_of(z.clone().requires_grad_(), y, table))
        assert (value.item(), value.requires_grad) == (0, False)


@pytest.mark.parametrize("loss", [GCSA(), RCSA()])
def test_binary_batch_silences_the_prototype_level_only(view_of, draw, loss):
    z = draw(8, 2, dtype=torch.float32).requires_grad_()
    view = view_of(z, torch.arange(8) % 2, table_of(0, 1))
    assert not PrototypeLevel(loss, "skip")(view).requires_grad
    value = InstanceLevel(loss, "skip")(view)
    assert value.requires_grad
    value.backward()
    assert z.grad.abs().sum() > 0


@LEVELS
@pytest.mark.parametrize("loss", [GCSA(), RCSA()])
def test_one_class_batch_is_silent(view_of, draw, level, loss):
    z = draw(8, 2, dtype=torch.float32).requires_grad_()
    value = level(loss, "skip")(view_of(z, torch.full((8,), 3), table_of(0, 1, 2, 3)))
    assert (value.item(), value.requires_grad) == (0, False)


@LEVELS
@pytest.mark.parametrize(
    "loss", [MSE("mean"), GCSA(), RCSA(), Contrastive(0.5, False, "class"), Contrastive(0.5, False, "batch")]
)
def test_every_sample_of_a_known_class_gets_a_gradient(view_of, draw, level, loss):
    z = draw(10, 2, dtype=torch.float32).requires_grad_()
    level(loss, "skip")(view_of(z, torch.arange(10) % 5, table_of(0, 1, 2, 4))).backward()
    reached = z.grad.abs().sum(dim=1) > 0
    assert reached.tolist() == [label != 3 for label in (torch.arange(10) % 5).tolist()]


def test_prototype_level_of_mse_by_hand(view_of):
    # One class with samples 1 and 3, prototype 6: (2 - 6)^2 = 16; each sample gets half of -8.
    z = torch.tensor([[1.0], [3.0]], requires_grad=True)
    value = PrototypeLevel(MSE("mean"), "skip")(
        view_of(z, torch.tensor([0, 0]), ClassTable(torch.tensor([[6.0]]), torch.tensor([True])))
    )
    value.backward()
    assert value.item() == 16
    assert z.grad.tolist() == [[-4], [-4]]


def test_order_of_the_batch_does_not_matter(view_of, draw):
    z, y, table = draw(20, 6), torch.arange(20) % 5, ClassTable(draw(5, 6), torch.ones(5, dtype=torch.bool))
    order = torch.arange(20).flip(0)
    for level in (PrototypeLevel, InstanceLevel):
        for loss in (GCSA(), RCSA(), Contrastive(0.5, False, "class")):
            term = level(loss, "skip")
            assert term(view_of(z[order], y[order], table)).item() == pytest.approx(
                term(view_of(z, y, table)).item(), abs=1e-12
            )


def test_uniformity_term_is_the_second_part_of_the_contrastive_loss(view_of, draw):
    z, y, table = draw(12, 2), torch.arange(12) % 5, table_of(1, 2, 4)
    view, known = view_of(z, y, table), table.mask[y]
    cosines = torch.nn.functional.cosine_similarity(z[known], table.values[y[known]].double())
    whole = InstanceLevel(Contrastive(0.5, False, "class"), "skip")(view)
    assert UniformityTerm(0.5)(view).item() == pytest.approx((whole + cosines.mean() / 0.5).item(), abs=1e-12)


def test_mse_rows_are_the_pure_function(view_of):
    z, y = BATCH
    table = table_of(0, 1, 2, 3, 4)
    assert InstanceLevel(MSE("rowsum"), "skip")(view_of(z, y, table)) == mse(z, table.values[y], "rowsum")


def test_unknown_choices_are_named():
    with pytest.raises(ValueError, match="missing_rows is 'drop'; choose skip or self"):
        InstanceLevel(MSE("mean"), "drop")
    with pytest.raises(ValueError, match="reduction.*'sum'"):
        MSE("sum")
    with pytest.raises(ValueError, match="reduction.*'sum'"):
        mse(torch.zeros(1, 1), torch.zeros(1, 1), "sum")
    for make in (
        lambda: Contrastive(0.0, False, "class"),
        lambda: Contrastive(-1.0, False, "batch"),
        lambda: Uniformity(float("nan")),
    ):
        with pytest.raises(ValueError, match="temperature is"):
            make()
