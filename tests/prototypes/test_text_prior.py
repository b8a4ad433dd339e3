import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedsaf.core.types import ServerContext
from fedsaf.methods.fedtsp import TextPrior, scaled_cosine_loss
from fedsaf.prototypes.text_sources import hashed_text

C, D = 4, 6
NAMES = ("sea lion", "lion", "truck", "fire_truck")
SETTINGS = {
    "source": "lexical",
    "path": None,
    "descriptions": None,
    "template": "A photo of a {name}: {description}",
    "num_context": 1,
    "steps": 1,
    "lr": 0.1,
    "log_scale": 1.0,
}


def build(d=D, names=NAMES, seed=5, **changes):
    constructor = TextPrior(**SETTINGS | changes)
    constructor.prepare(ServerContext(len(names), d, seed, class_names=names))
    return constructor


def uploads(upload, d=D):
    rows = torch.randn(4, d, generator=torch.Generator().manual_seed(0)).tolist()
    return [
        upload(0, {0: (rows[0], 4), 1: (rows[1], 2)}, d=d),
        upload(1, {0: (rows[2], 1), 3: (rows[3], 7)}, d=d),
    ]


def loss_of(offset, scale, prior, projection, targets, labels):
    """CE of the K x C matrix e^s cos(P^k, T^c) against each row's class, in NumPy."""
    T = (prior + offset) @ projection
    unit = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in (targets, T)]
    scores = np.exp(scale) * unit[0] @ unit[1].T
    return (np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]).mean()


@pytest.mark.parametrize("width", [6, 3, 9])
def test_one_server_step_by_finite_differences(width, upload, tmp_path):
    """Rows are the uploaded classes 0, 1, 3, that of class 0 the plain mean of two; columns are all four classes."""
    prior = np.random.default_rng(1).normal(size=(C, width))
    np.save(tmp_path / "text.npy", prior)
    constructor = build(source="file", path=str(tmp_path / "text.npy"))
    state = {name: tensor.double().numpy() for name, tensor in constructor.state_dict().items() if name != "seen"}
    sent = constructor.broadcast()["values"].double().numpy()
    projection = np.linalg.lstsq(prior + state["offset"], sent, rcond=None)[0] if width <= C else None
    if projection is None:  # more unknowns than rows: take it from the object, its action is checked below
        projection = np.eye(D) if width == D else constructor._projection.double().numpy()
    np.testing.assert_allclose((prior + state["offset"]) @ projection, sent, atol=1e-5)
    np.testing.assert_allclose(
        projection.T @ projection if width >= D else projection @ projection.T, np.eye(min(width, D)), atol=1e-5
    )
    rows = [u.message["values"].double().numpy() for u in uploads(upload)]
    targets, labels = np.stack([(rows[0][0] + rows[1][0]) / 2, rows[0][1], rows[1][1]]), np.array([0, 1, 3])

    def at(offset, scale):
        return loss_of(offset, scale, prior, projection, targets, labels)

    report = constructor.update(uploads(upload), 0)
    assert report["loss"] == pytest.approx(at(state["offset"], 1.0), rel=1e-5)
    expected = state["offset"].copy()
    for index in np.ndindex(expected.shape):
        step = np.zeros_like(expected)
        step[index] = 1e-6
        expected[index] -= 0.1 * (at(state["offset"] + step, 1.0) - at(state["offset"] - step, 1.0)) / 2e-6
    trained = constructor.state_dict()
    np.testing.assert_allclose(trained["offset"], expected, atol=1e-5)
    slope = (at(state["offset"], 1 + 1e-6) - at(state["offset"], 1 - 1e-6)) / 2e-6
    assert trained["log_scale"].item() == pytest.approx(1.0 - 0.1 * slope, abs=1e-5)
    assert report["scale"] == pytest.approx(np.exp(trained["log_scale"].item()), rel=1e-6)


def test_client_loss_against_numpy():
    draws = np.random.default_rng(0)
    Z, T, labels = draws.normal(size=(5, D)), draws.normal(size=(C, D)), np.array([0, 3, 1, 1, 2])
    value = scaled_cosine_loss(*map(torch.from_numpy, (Z, labels, T)), torch.tensor(0.7, dtype=torch.float64))
    expected = loss_of(np.zeros_like(T), 0.7, T, np.eye(D), Z, labels)
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_every_class_has_a_vector_from_the_start_and_only_uploads_are_seen(upload):
    constructor = build()
    message = constructor.broadcast()
    assert message["labels"].tolist() == [0, 1, 2, 3]
    assert message["scale"].item() == pytest.approx(1.0)
    assert not message["seen"].any()
    constructor.update(uploads(upload), 0)
    assert constructor.broadcast()["seen"].tolist() == [True, True, False, True]


def test_more_steps_fit_better(upload):
    assert build(steps=30).update(uploads(upload), 0)["loss"] < build(steps=1).update(uploads(upload), 0)["loss"]


def test_spelling_carries_over():
    vectors = torch.stack([hashed_text(name, 4096) for name in ("sea lion", "lion", "truck", "fire truck")])
    cosines = vectors @ vectors.T
    torch.testing.assert_close(cosines.diagonal(), torch.ones(4, dtype=torch.float64))
    assert cosines[0, 1] > 0.4
    assert cosines[2, 3] > 0.4
    assert cosines[:2, 2:].abs().max() < 0.1


def test_the_template_brings_lexical_vectors_together():
    """Names of one letter share nothing; in the template they share all but the name, as texts of an encoder do."""
    alone, filled = (
        build(d=4096, names=tuple("abcd"), template=template).state_dict()["prior"]
        for template in ("{name}", SETTINGS["template"])
    )
    torch.testing.assert_close(alone @ alone.T, torch.eye(4), atol=0.5, rtol=0)
    assert (alone @ alone.T - torch.eye(4)).abs().mean() < 0.1
    assert (filled @ filled.T).min() > 0.8


def test_descriptions_are_read(tmp_path):
    texts = {name.replace("_", " "): [f"of {number} things"] for number, name in zip("5678", NAMES, strict=True)}
    texts["sea lion"] = texts["truck"] = ["grey fur"]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    described = build(d=4096, descriptions=str(tmp_path / "texts.json")).state_dict()["prior"]
    plain = build(d=4096).state_dict()["prior"]
    assert not torch.allclose(described, plain)
    assert described[0] @ described[2] > plain[0] @ plain[2] + 0.05  # they share a description
    del texts["truck"]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    with pytest.raises(ValueError, match="none for class 'truck'; nearest: fire truck"):
        build(descriptions=str(tmp_path / "texts.json"))


def test_files(tmp_path):
    table = torch.randn(C, 3)
    save_file({"anything": table}, tmp_path / "text.safetensors")
    constructor = build(source="file", path=str(tmp_path / "text.safetensors"))
    assert torch.equal(constructor.state_dict()["prior"], table)
    np.save(tmp_path / "short.npy", table[:3].numpy())
    with pytest.raises(ValueError, match=r"one \(4, v\) matrix, got \[\(3, 3\)\]"):
        build(source="file", path=str(tmp_path / "short.npy"))
    with pytest.raises(ValueError, match="needs path"):
        build(source="file")


def test_a_state_of_another_source_is_refused(upload):
    state = build().state_dict()
    with pytest.raises(ValueError, match="other class vectors"):
        build(names=("a", "b", "c", "d")).load_state_dict(state)


def test_random_depends_on_the_seed_and_lexical_does_not():
    assert not torch.equal(*(build(source="random", seed=s).state_dict()["prior"] for s in (0, 1)))
    assert torch.equal(*(build(source="lexical", seed=s).state_dict()["prior"] for s in (0, 1)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "words"}, "source is 'words'; choose"),
        ({"path": "x.npy"}, "path='x.npy' is read by sources 'file' and 'encoder', not by 'lexical'"),
        ({"source": "random", "descriptions": "x.json"}, "not by 'random'"),
        ({"steps": 0}, "steps is 0"),
        ({"source": "encoder"}, "needs path"),
        ({"names": ()}, ""),
    ],
    ids=str,
)
def test_refusals(changes, message):
    if "names" in changes:
        with pytest.raises(ValueError, match="needs the names of all 4 classes, got 0"):
            TextPrior(**SETTINGS).prepare(ServerContext(4, D, 0))
        return
    with pytest.raises(ValueError, match=message):
        build(**changes)


class TestEncoder:
    """A tiny CLIP text tower and a tiny BERT, built here with drawn weights."""

    @pytest.fixture(params=["clip", "bert"])
    def folder(self, request, tmp_path):
        transformers = pytest.importorskip("transformers", reason="the extra 'text' is not installed")
        torch.manual_seed(0)
        words = sorted({"a", "photo", "of", ":", "grey", "fur", *" ".join(NAMES).replace("_", " ").split()})
        sizes = {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "max_position_embeddings": 24,
        }
        if request.param == "clip":
            letters = [*"abcdefghijklmnopqrstuvwxyz:"]
            vocab = {t: i for i, t in enumerate([*letters, *(f"{x}</w>" for x in letters)])}
            vocab |= {"<|startoftext|>": len(vocab), "<|endoftext|>": len(vocab) + 1}
            (tmp_path / "vocab.json").write_text(json.dumps(vocab))
            (tmp_path / "merges.txt").write_text("#version: 0.2\n")
            tokeniser = transformers.CLIPTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
            ends = {"bos_token_id": len(vocab) - 2, "eos_token_id": len(vocab) - 1}
            sizes["max_position_embeddings"] = 77
            config = transformers.CLIPTextConfig(vocab_size=len(vocab), projection_dim=12, **ends, **sizes)
            model = transformers.CLIPTextModelWithProjection(config)
        else:
            (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
            tokeniser = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
            model = transformers.BertModel(transformers.BertConfig(vocab_size=len(words) + 5, **sizes))
        model.eval().save_pretrained(tmp_path)
        tokeniser.save_pretrained(tmp_path)
        (tmp_path / "texts.json").write_text(json.dumps({n.replace("_", " "): ["grey", "fur fur"] for n in NAMES}))
        return tmp_path

    def build(self, folder, **changes):
        return build(source="encoder", path=str(folder), descriptions=str(folder / "texts.json"), **changes)

    def test_prior_is_the_mean_of_the_texts_as_the_model_gives_them(self, folder):
        import transformers

        tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
        clip = (folder / "merges.txt").exists()
        loader = transformers.CLIPTextModelWithProjection if clip else transformers.BertModel
        model = loader.from_pretrained(folder).eval()
        prior = self.build(folder).state_dict()["prior"]
        for c, name in enumerate(NAMES):
            vectors = []
            for text in ("grey", "fur fur"):
                tokens = tokeniser(f"A photo of a {name.replace('_', ' ')}: {text}", return_tensors="pt")
                with torch.no_grad():
                    output = model(**tokens)
                vectors.append(output.text_embeds[0] if clip else output.last_hidden_state[0, 0])
            torch.testing.assert_close(prior[c], torch.stack(vectors).mean(dim=0), atol=1e-5, rtol=1e-4)

    def test_context_belongs_to_its_class_and_alone_learns(self, folder, upload):
        constructor = self.build(folder, num_context=2)
        state = constructor.state_dict()
        assert state.keys() == {"prior", "context", "log_scale", "seen"}
        assert state["context"].shape == (C, 2, 16)
        before = constructor.broadcast()["values"]
        constructor._source.context.data[2] += torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
        changed = (constructor.broadcast()["values"] - before).abs().amax(dim=1) > 1e-5
        assert changed.tolist() == [False, False, True, False]
        weights = {n: p.clone() for n, p in constructor._source._model.named_parameters()}
        first = constructor.update(uploads(upload), 0)["loss"]
        for round in range(20):
            last = constructor.update(uploads(upload), round)["loss"]
        assert last < first
        assert not torch.equal(constructor.state_dict()["context"], state["context"])
        assert all(torch.equal(weights[n], p) for n, p in constructor._source._model.named_parameters())

    def test_resuming(self, folder, upload):
        first, second = self.build(folder), self.build(folder)
        first.update(uploads(upload), 0)
        second.load_state_dict(first.state_dict())
        assert first.update(uploads(upload), 1) == second.update(uploads(upload), 1)
        assert torch.equal(first.broadcast()["values"], second.broadcast()["values"])

    def test_context_that_leaves_no_room_is_refused(self, folder):
        with pytest.raises(ValueError, match="num_context=70 replaces more than the"):
            self.build(folder, num_context=70)


def test_without_transformers_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fedsaf\[text\]'"):
        build(source="encoder", path=str(tmp_path))
