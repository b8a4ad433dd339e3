import pytest
import torch

from fedsaf.federation.method import Channel
from fedsaf.methods.prototype import PrototypeChannel
from fedsaf.prototypes.mean import Mean


class Client:
    """What a half needs of a client: dimensions, a device, notes, and features equal to the inputs."""

    num_classes, feature_dim, device = 4, 2, torch.device("cpu")

    def __init__(self):
        self.received, self.scratch, self.training = {}, {}, True

    def eval(self):
        self.training = False

    def __call__(self, x):
        assert not self.training
        return x, None


class View:
    def __init__(self, z, y):
        self.z, self.y = z, y


X = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]])
Y = torch.tensor([2, 2, 0])


def run(collect, weighting="samples", epochs=2):
    """Two epochs over X in training mode with features 10 X, then 20 X; evaluation mode shows X itself."""
    client = Client()
    channel = Channel(PrototypeChannel("prototypes", collect), Mean(weighting, "keep"), ["labels"])
    channel.client.on_train_start(client, [(X, Y)])
    for epoch in range(epochs):
        channel.client.on_train_batch_end(client, View(10 * (epoch + 1) * X, Y), epoch, epochs)
    return channel, channel.send(client, [(X, Y)])


@pytest.mark.parametrize(
    ("collect", "scale", "copies"),
    [("clean", 1.0, 1), ("stale", 1.0, 1), ("running_all", 15.0, 2), ("running_last", 20.0, 1)],
)
def test_which_features_are_averaged(collect, scale, copies):
    _, message = run(collect)
    assert message["labels"].tolist() == [0, 2]
    assert message["values"].tolist() == [[0.0, 5.0 * scale], [2.0 * scale, 0.0]]
    assert message["counts"].tolist() == [copies, 2 * copies]


def test_unknown_collection_lists_the_known_ones():
    with pytest.raises(ValueError, match="clean, running_all"):
        PrototypeChannel("prototypes", "posteval")


def test_counts_travel_only_where_they_are_read():
    channel, message = run("clean", "samples")
    # 2 classes x 2 numbers x 4 bytes, 2 counts x 8 bytes; the labels are not counted.
    assert channel.num_bytes(message) == 2 * 2 * 4 + 2 * 8
    channel, message = run("clean", "uniform")
    assert "counts" not in message
    assert channel.num_bytes(message) == 2 * 2 * 4
    assert channel.num_bytes(None) == 0


def test_received_rows_are_scattered_and_nothing_clears_the_table():
    client, half = Client(), PrototypeChannel("prototypes", "clean")
    half.receive(client, {"labels": torch.tensor([1, 3]), "values": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})
    table = client.received["prototypes"]
    assert table.mask.tolist() == [False, True, False, True]
    assert table.values.tolist() == [[0, 0], [1, 2], [0, 0], [3, 4]]
    half.receive(client, None)
    assert "prototypes" not in client.received


def test_absent_classes_cost_nothing():
    """Two clients with 3 and 2 of 10 classes at width 16: 5 x 16 x 4 bytes up, and 8 for each count."""
    channel = Channel(PrototypeChannel("prototypes", "clean"), Mean("uniform", "keep"), ["labels"])
    sizes = [channel.num_bytes({"labels": torch.arange(k), "values": torch.zeros(k, 16)}) for k in (3, 2)]
    assert sum(sizes) == 5 * 16 * 4
