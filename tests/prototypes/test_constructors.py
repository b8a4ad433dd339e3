"""The contract of every constructor, and averaging worked out by hand."""

import itertools
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from fedsaf.core.types import ServerContext
from fedsaf.methods.alignfed import Hypersphere
from fedsaf.methods.fedsa import SemanticAnchors
from fedsaf.methods.fedtgp import Trainable
from fedsaf.methods.fedtsp import TextPrior
from fedsaf.methods.generator_prior import GeneratorPrior, LatentTraining
from fedsaf.prototypes.decoders import GeneratorSource
from fedsaf.prototypes.mean import Mean

FOLDER = Path(__file__).parents[2] / "conf" / "prototype"
TRAINING = {"epochs": 3, "batch_size": 2, "lr": 0.1, "max_margin": 100.0, "fixed_margin": 1.0, "send_initial": False}
TRAINING |= {"predict_unseen": False}
CONSTRUCTORS = {
    "weighted": lambda: Mean("samples", "keep"),
    "uniform": lambda: Mean("uniform", "drop"),
    "hypersphere": lambda: Hypersphere("auto", 1.0),
    "trainable": lambda: Trainable(margin="max_pair", network=True, **TRAINING),
    "embeddings": lambda: Trainable(margin="none", network=False, **TRAINING),
    "anchors": lambda: SemanticAnchors("ema", decay=0.9, epochs=1, batch_size=2, lr=0.1),
    "trained anchors": lambda: SemanticAnchors("train", decay=0.9, epochs=2, batch_size=2, lr=0.1),
    "text": lambda: TextPrior("lexical", None, None, "{name}", 1, steps=2, lr=0.1, log_scale=1.0),
    "latents": lambda: GeneratorPrior(
        "table",
        GeneratorSource("random_decoder", None, None, latent_dim=3, width=2, epochs=1, batch_size=1, lr=0.1),
        LatentTraining(epochs=2, batch_size=3, lr=0.1, centroid_weight=1.0, max_norm=10.0),
    ),
}
every = pytest.mark.parametrize("make", CONSTRUCTORS.values(), ids=CONSTRUCTORS)


def ready(constructor, num_classes=4, feature_dim=5, seed=0):
    names = [f"class {c}" for c in range(num_classes)]
    constructor.prepare(ServerContext(num_classes, feature_dim, seed, class_names=names))
    return constructor


def drawn(upload, seed, classes_of=((0, 2), (2, 3), (), (0, 2, 3))):
    generator = torch.Generator().manual_seed(seed)
    return [
        upload(client, {c: (torch.randn(5, generator=generator).tolist(), 3 + c + client) for c in classes}, d=5)
        for client, classes in enumerate(classes_of)
    ]


def assert_equal_messages(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


@every
def test_message(make, upload):
    constructor = ready(make())
    metrics = constructor.update(drawn(upload, 0), round=0)
    message = constructor.broadcast()
    assert message.keys() - {"seen", "scale"} == {"labels", "values"}
    assert message["labels"].dtype == torch.int64
    assert message["values"].dtype == torch.float32
    assert message["values"].shape == (len(message["labels"]), 5)
    assert message["labels"].tolist() == sorted(message["labels"].tolist())
    assert message["values"].isfinite().all()
    assert not message["values"].requires_grad
    assert metrics["num_prototypes"] == len(message["labels"])
    assert all(type(value) is float for value in metrics.values())


@every
def test_resuming_from_the_state_gives_the_same_bits(make, upload):
    straight, stopped = ready(make()), ready(make())
    for constructor in (straight, stopped):
        constructor.update(drawn(upload, 0), round=0)
    resumed = ready(make(), seed=0)
    resumed.load_state_dict(stopped.state_dict())
    assert_equal_messages(resumed.broadcast(), straight.broadcast())
    second = drawn(upload, 1, classes_of=((0,), (3,)))
    assert straight.update(second, round=1) == resumed.update(second, round=1)
    assert_equal_messages(resumed.broadcast(), straight.broadcast())
    assert_equal_messages(resumed.state_dict(), straight.state_dict())


@every
def test_state_is_a_copy(make, upload):
    constructor = ready(make())
    constructor.update(drawn(upload, 0), round=0)
    before, state = constructor.broadcast(), constructor.state_dict()
    for tensor in state.values():
        tensor.zero_()
    assert_equal_messages(constructor.broadcast(), before)


@every
def test_incomplete_or_foreign_state_is_refused(make, upload):
    constructor = ready(make())
    constructor.update(drawn(upload, 0), round=0)
    state = constructor.state_dict()
    for name in state:
        with pytest.raises(ValueError, match="must have the keys"):
            ready(make()).load_state_dict({key: value for key, value in state.items() if key != name})
        with pytest.raises(ValueError, match=f"{name} of"):
            ready(make()).load_state_dict({**state, name: state[name].flatten().repeat(2)})
        with pytest.raises(ValueError, match=f"{name} of"):
            ready(make()).load_state_dict({**state, name: state[name].double()})
    with pytest.raises(ValueError, match="must have the keys"):
        ready(make()).load_state_dict({**state, "other": torch.zeros(1)})


@every
def test_order_of_arrival_changes_no_bit(make, upload):
    uploads = drawn(upload, 0)
    messages = []
    for order in itertools.permutations(uploads):
        constructor = ready(make())
        constructor.update(list(order), round=0)
        messages.append(constructor.broadcast())
    for message in messages[1:]:
        assert_equal_messages(message, messages[0])


@every
def test_uploads_without_any_row(make, upload):
    constructor = ready(make())
    before = constructor.broadcast()
    for uploads in ([], [upload(0, {}, d=5), upload(1, {}, d=5)]):
        metrics = constructor.update(uploads, round=0)
        after = constructor.broadcast()
        assert (after is None) == (before is None)
        assert metrics["num_prototypes"] == (0 if after is None else 4)


@every
def test_counts_are_read_only_if_asked_for(make, upload):
    constructor = ready(make())
    uploads = drawn(upload, 0)
    if not constructor.needs_counts:
        for item in uploads:
            del item.message["counts"]
    constructor.update(uploads, round=0)
    assert constructor.broadcast() is not None


@pytest.mark.parametrize("make", [v for k, v in CONSTRUCTORS.items() if k != "hypersphere"])
def test_malformed_uploads_name_the_client(make, upload):
    for spoil, error, text in (
        (lambda m: m["values"].fill_(float("nan")), FloatingPointError, "client 7"),
        (lambda m: m["labels"].fill_(4), ValueError, r"client 7 must lie in \[0, 4\)"),
        (lambda m: m.update(values=m["values"][:, :3]), ValueError, r"client 7 must be \(1, 5\)"),
    ):
        item = upload(7, {2: ([1.0] * 5, 3)}, d=5)
        spoil(item.message)
        with pytest.raises(error, match=text):
            ready(make()).update([item], round=0)


class TestMeanByHand:
    def message(self, constructor):
        message = constructor.broadcast()
        return dict(zip(message["labels"].tolist(), message["values"].tolist(), strict=True))

    def first(self, upload):
        return [
            upload(0, {0: ([1.0, 0.0], 1), 2: ([4.0, 4.0], 2)}),
            upload(3, {0: ([5.0, 8.0], 3)}),
            upload(5, {}),
        ]

    def test_weighted_by_samples(self, upload):
        mean = ready(Mean("samples", "keep"), 4, 2)
        assert mean.broadcast() is None
        assert mean.update(self.first(upload), 0) == {"num_prototypes": 2.0}
        assert self.message(mean) == {0: [4.0, 6.0], 2: [4.0, 4.0]}

    def test_uniform(self, upload):
        mean = ready(Mean("uniform", "keep"), 4, 2)
        mean.update(self.first(upload), 0)
        assert self.message(mean) == {0: [3.0, 4.0], 2: [4.0, 4.0]}

    def test_keep(self, upload):
        mean = ready(Mean("samples", "keep"), 4, 2)
        mean.update(self.first(upload), 0)
        mean.update([upload(1, {2: ([1.0, 1.0], 9), 3: ([2.0, 2.0], 1)})], 1)
        assert self.message(mean) == {0: [4.0, 6.0], 2: [1.0, 1.0], 3: [2.0, 2.0]}

    def test_drop(self, upload):
        mean = ready(Mean("samples", "drop"), 4, 2)
        mean.update(self.first(upload), 0)
        mean.update([upload(1, {2: ([1.0, 1.0], 9), 3: ([2.0, 2.0], 1)})], 1)
        assert self.message(mean) == {2: [1.0, 1.0], 3: [2.0, 2.0]}
        mean.update([], 2)
        assert mean.broadcast() is None
        assert not mean.state_dict()["values"].any()

    def test_nothing_is_sent_ahead(self):
        assert ready(Mean("samples", "keep")).setup_message() is None

    def test_zero_count_is_refused(self, upload):
        with pytest.raises(ValueError, match="counts must be at least 1"):
            ready(Mean("samples", "keep"), 4, 2).update([upload(0, {1: ([1.0, 1.0], 0)})], 0)

    @pytest.mark.parametrize(
        ("argument", "choices"), [("weighting", ("size", "keep")), ("absent", ("samples", "zero"))]
    )
    def test_unknown_choice_is_named(self, argument, choices):
        with pytest.raises(ValueError, match=argument):
            Mean(*choices)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_conf_builds(path, upload):
    with initialize_config_dir(str(FOLDER.parent), version_base="1.3"):
        config = compose("train", overrides=[f"prototype={path.stem}"])
    constructor = ready(instantiate(config.prototype))
    constructor.update(drawn(upload, 0), round=0)
    assert constructor.broadcast() is not None
