import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import ImageFacts, ServerContext
from fedsaf.losses.mmd import kernel, mmd
from fedsaf.methods.generator_prior import GeneratorPrior, LatentTraining
from fedsaf.prototypes.decoders import GeneratorSource, make_images, vae_loss

C, W = 4, 3
FACTS = ImageFacts(channels=3, size=10, mean=(0.5, 0.4, 0.3), std=(0.5, 0.25, 0.2), fingerprint="clients")


@dataclass(frozen=True)
class Public:
    """A data source: 40 images whose left half is as bright as their right half is dark."""

    fingerprint: str = "public"

    def load(self, seed):
        shade = torch.rand(40, 1, 1, 1, generator=torch.Generator().manual_seed(0))
        images = torch.cat([shade.expand(40, 3, 10, 5), (1 - shade).expand(40, 3, 10, 5)], dim=3)
        return SimpleNamespace(inputs=(255 * images).byte(), fingerprint=self.fingerprint)


def source(kind="random_decoder", **changes):
    settings = {"path": None, "images": None, "latent_dim": W, "width": 4, "epochs": 1, "batch_size": 10, "lr": 0.01}
    return GeneratorSource(kind, **settings | changes)


def build(output="pairs", generator=None, facts=FACTS, seed=5, **changes):
    training = {"epochs": 1, "batch_size": 100, "lr": 0.01, "centroid_weight": 0.5, "max_norm": 100.0} | changes
    constructor = GeneratorPrior(output, generator or source(), LatentTraining(**training))
    constructor.prepare(ServerContext(C, 7, seed, images=facts))
    return constructor


def draw_rows(n, d):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0)).tolist()


def uploads(upload):
    rows = draw_rows(5, C)
    return [
        upload(0, {0: (rows[0], 4), 1: (rows[1], 2)}, d=C),
        upload(1, {0: (rows[2], 1), 3: (rows[3], 7)}, d=C),
        upload(2, {3: (rows[4], 7)}, d=C),
    ]


def pairs(upload):
    means = np.concatenate([u.message["values"].double().numpy() for u in uploads(upload)])
    labels = np.concatenate([u.message["labels"].numpy() for u in uploads(upload)])
    return means / np.linalg.norm(means, axis=1, keepdims=True), labels


def numpy_kernel(a, b):
    return sum(math.exp(-float(((a - b) ** 2).sum()) / (2 * s)) for s in (10, 15, 20, 50))


def numpy_mmd(X, Y):
    return sum(
        sign * np.mean([numpy_kernel(a, b) for a in A for b in B]) for sign, A, B in ((1, X, X), (1, Y, Y), (-2, X, Y))
    )


def phi(state, X, mean=None, var=None):
    """The network in NumPy; batch statistics unless running ones are given."""
    hidden = X @ state["transform.0.weight"].T + state["transform.0.bias"]
    mean, var = (hidden.mean(0), hidden.var(0)) if mean is None else (mean, var)
    hidden = (hidden - mean) / np.sqrt(var + 1e-5) * state["transform.1.weight"] + state["transform.1.bias"]
    return np.maximum(hidden, 0) @ state["transform.3.weight"].T + state["transform.3.bias"]


def phi_eval(state, X):
    return phi(state, X, state["transform.1.running_mean"], state["transform.1.running_var"])


def numpy_state(constructor):
    return {name: tensor.double().numpy() for name, tensor in constructor.state_dict().items()}


def class_means(X, labels):
    return {c: X[labels == c].mean(0) for c in np.unique(labels)}


def test_mmd_against_loops():
    draws = np.random.default_rng(0)
    X, Y = draws.normal(size=(4, W)), draws.normal(size=(6, W)) + 3
    assert mmd(torch.from_numpy(X), torch.from_numpy(Y)).item() == pytest.approx(numpy_mmd(X, Y), rel=1e-12)
    assert mmd(torch.from_numpy(X), torch.from_numpy(X + 0.0)).item() == pytest.approx(0, abs=1e-12)
    assert kernel(torch.zeros(1, W), torch.zeros(1, W)).item() == 4


def test_one_round_against_numpy(upload):
    """Recentre, one Adam step, recentre. Adam's first step moves every weight by lr against the sign of its slope.

    The loss is the MMD of five mapped prototypes to five latents, plus half the mean squared distance to centroids.
    """
    constructor, (X, labels) = build(), pairs(upload)
    state = numpy_state(constructor)
    centroids = state["centroids"].copy()
    for c, mean in class_means(phi_eval(state, X), labels).items():
        centroids[c] = mean
    draws = torch_generator(5, "prototypes/generator_prior/train", 3)
    order = torch.randperm(5, generator=draws).numpy()
    latents = torch.randn(5, W, generator=draws).double().numpy()

    def loss(state):
        mapped = phi(state, X[order])
        return numpy_mmd(mapped, latents) + 0.5 * ((mapped - state["centroids"][labels[order]]) ** 2).mean()

    state["centroids"] = centroids
    report = constructor.update(uploads(upload), 3)
    assert report["loss"] == pytest.approx(loss(state), rel=1e-5)
    assert report["num_prototypes"] == 3
    trained = numpy_state(constructor)
    for name in ("transform.3.weight", "transform.3.bias", "transform.0.weight"):
        for index in np.ndindex(state[name].shape):
            ends = []
            for sign in (1, -1):
                moved = {**state, name: state[name].copy()}
                moved[name][index] += sign * 1e-6
                ends.append(loss(moved))
            slope = (ends[0] - ends[1]) / 2e-6
            expected = state[name][index] - (0.01 * np.sign(slope) if abs(slope) > 1e-5 else 0)
            if abs(slope) > 1e-5:
                assert trained[name][index] == pytest.approx(expected, abs=1e-4), (name, index)
    for c, mean in class_means(phi_eval(trained, X), labels).items():
        np.testing.assert_allclose(trained["centroids"][c], mean, atol=1e-5)


def test_a_class_nobody_uploaded_has_no_pair(upload):
    constructor = build()
    assert constructor.broadcast() is None
    constructor.update(uploads(upload), 0)
    message = constructor.broadcast()
    assert message.keys() == {"labels", "latents", "images"}
    assert message["labels"].tolist() == [0, 1, 3]
    assert message["latents"].shape == (3, W)
    assert message["images"].shape == (3, 3, 10, 10)
    kept = message["latents"][0]
    constructor.update([upload(0, {2: ([1.0] * C, 1)}, d=C)], 1)
    message = constructor.broadcast()
    assert message["labels"].tolist() == [0, 1, 2, 3]
    assert torch.equal(message["latents"][0], kept)


def test_one_pair_trains_nothing_but_is_mapped(upload):
    constructor = build()
    state, X = numpy_state(constructor), np.full((1, C), 0.5)
    report = constructor.update([upload(0, {2: ([2.0] * C, 1)}, d=C)], 0)
    assert report == {"num_prototypes": 1.0}
    after = numpy_state(constructor)
    np.testing.assert_array_equal(after["transform.0.weight"], state["transform.0.weight"])
    np.testing.assert_allclose(after["centroids"][2], phi_eval(state, X)[0], atol=1e-6)


def test_training_matches_the_latent_law(upload):
    """After many steps the mapped prototypes are closer to standard normal draws than at the start."""
    constructor = build(epochs=200, centroid_weight=0.01)
    first = build(epochs=1, centroid_weight=0.01).update(uploads(upload), 0)["loss"]
    assert constructor.update(uploads(upload), 0)["loss"] < first


def test_table_keeps_distances(upload):
    """Latents of width 3 go into R^7 by an isometry, so any structural loss sees the geometry of the latents."""
    constructor = build("table", facts=None)
    means = iter(draw_rows(5, 7))
    classes = ((0, 1), (0, 3), (3,))
    constructor.update([upload(i, {c: (next(means), 1) for c in own}, d=7) for i, own in enumerate(classes)], 0)
    message, latents = constructor.broadcast(), constructor.state_dict()["centroids"][[0, 1, 3]]
    assert message["values"].shape == (3, 7)
    torch.testing.assert_close(torch.cdist(message["values"], message["values"]), torch.cdist(latents, latents))
    assert not any(name.startswith("generator") for name in constructor.state_dict())


def test_images_are_normalised_like_the_clients():
    latents = torch.zeros(2, W)
    for channels in (1, 3):
        raw = torch.rand(2, channels, 20, 20, generator=torch.Generator().manual_seed(channels))
        for facts in (FACTS, ImageFacts(1, 10, (0.5,), (0.5,), "")):
            images = make_images(lambda _, raw=raw: raw, latents, facts)
            assert images.shape == (2, facts.channels, 10, 10)
            back = images * torch.tensor(facts.std).view(-1, 1, 1) + torch.tensor(facts.mean).view(-1, 1, 1)
            assert back.mean().item() == pytest.approx(raw.mean().item(), abs=0.02)
            assert back.min() >= 0
            assert back.max() <= 1
    with pytest.raises(ValueError, match="1 or 3, s, s"):
        make_images(lambda _: torch.rand(2, 2, 10, 10), latents, FACTS)
    with pytest.raises(ValueError, match="NaN or Inf"):
        make_images(lambda _: torch.full((2, 3, 10, 10), math.nan), latents, FACTS)


def test_evidence_bound_against_numpy():
    draws = np.random.default_rng(0)
    x, r, mean, log_variance = (
        draws.random((2, 3, 4, 4)),
        draws.uniform(0.1, 0.9, (2, 3, 4, 4)),
        *draws.normal(size=(2, 2, W)),
    )
    pixels = -(x * np.log(r) + (1 - x) * np.log(1 - r)).sum()
    divergence = sum(
        0.5 * (math.exp(v) + m**2 - 1 - v) for m, v in zip(mean.ravel(), log_variance.ravel(), strict=True)
    )
    value = vae_loss(*map(torch.from_numpy, (r, x, mean, log_variance))).item()
    assert value == pytest.approx((pixels + divergence) / 2, rel=1e-10)


class TestTrainedDecoder:
    def test_it_draws_what_it_was_shown(self):
        """In every public image the two halves add up to one; so they do, nearly, in what is drawn."""
        latents = torch.randn(30, W, generator=torch.Generator().manual_seed(1))
        gap = {}
        for kind in ("random_decoder", "trained_decoder"):
            images = source(kind, images=Public(), epochs=60, width=8).build(FACTS, seed=0)(latents)
            sums = images[..., :5].mean(dim=(1, 2, 3)) + images[..., 5:].mean(dim=(1, 2, 3))
            gap[kind] = ((sums - 1).abs().mean().item(), images[..., :5].mean(dim=(1, 2, 3)).std().item())
        assert gap["trained_decoder"][0] < 0.1
        assert gap["trained_decoder"][1] > 5 * gap["random_decoder"][1]

    def test_it_is_a_function_of_the_seed(self):
        torch.manual_seed(0)
        first = source("trained_decoder", images=Public()).build(FACTS, seed=3).state_dict()
        torch.manual_seed(1)
        second = source("trained_decoder", images=Public()).build(FACTS, seed=3).state_dict()
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_the_clients_own_data_are_refused(self):
        with pytest.raises(ValueError, match="clients' own data"):
            source("trained_decoder", images=Public("clients")).build(FACTS, seed=0)

    def test_a_restored_server_does_not_train_it_again(self, upload):
        first = build(generator=source("trained_decoder", images=Public()))
        first.update(uploads(upload), 0)
        second = build(generator=source("trained_decoder", images=None))  # could not be trained
        second.load_state_dict(first.state_dict())
        assert torch.equal(first.broadcast()["images"], second.broadcast()["images"])
        assert first.update(uploads(upload), 1) == second.update(uploads(upload), 1)


class Stripes(nn.Module):
    """A user's generator."""

    def forward(self, latents):
        return latents[:, :1, None, None].sigmoid().expand(-1, 1, 16, 16)


def test_a_generator_from_a_file(upload, tmp_path):
    program = torch.export.export(Stripes(), (torch.randn(2, W),), dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    torch.export.save(program, tmp_path / "generator.pt2")
    constructor = build(generator=source("file", path=str(tmp_path / "generator.pt2")))
    constructor.update(uploads(upload), 0)
    message = constructor.broadcast()
    shade = message["latents"][:, 0].sigmoid()
    torch.testing.assert_close(message["images"][:, 1, 5, 5], (shade - 0.4) / 0.25)
    assert not any(name.startswith("generator") for name in constructor.state_dict())
    with pytest.raises(ValueError, match="written by torch.export.save"):
        source("file", path=str(tmp_path / "other.pt2")).build(FACTS, 0)


def test_refusals(upload):
    with pytest.raises(ValueError, match="kind is .* choose file"):
        source("gan")
    with pytest.raises(ValueError, match="'file' needs a path"):
        source("file")
    with pytest.raises(ValueError, match="output is .* choose table or pairs"):
        build("images")
    with pytest.raises(ValueError, match="take a data set of images"):
        build(facts=None)
    with pytest.raises(ValueError, match="batch_size must be at least 2"):
        build(batch_size=1)
    with pytest.raises(ValueError, match="must have the keys"):
        build().load_state_dict({"seen": torch.zeros(C, dtype=torch.bool)})
