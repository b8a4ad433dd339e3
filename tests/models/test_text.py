"""Networks for sequences of tokens: exact sizes, padding, initial weights, the log-softmax of HtFLlib."""

import math

import pytest
import torch
from torch import nn

from fedsaf.core.types import TokenFacts
from fedsaf.methods.auxiliary_model import SmallModel
from fedsaf.models.context import ModelContext
from fedsaf.models.text import TEXT_ARCHITECTURES, sinusoids
from fedsaf.models.text_group import TextGroup

# parameters beside embedding and head
SIZES = {
    "fasttext": 262_656,
    "lstm": 4_202_496,
    "bilstm": 4_727_296,
    "transformer": 6_304_768,
    "logistic_regression": 0,
    "gru": 3_151_872,
}
EMBEDDINGS = {32_000: 16_384_000, 98_635: 50_501_120, 80: 40_960}
FROZEN_PADDING = ("fasttext", "lstm", "gru", "logistic_regression")
NAMES = list(TEXT_ARCHITECTURES)


def group_of(*architectures, **changes):
    options = {
        "name": "test",
        "heads": ["linear"],
        "feature_dim": 16,
        "feature_map": "pool",
        "final_relu": False,
        "embedding_dim": 16,
        "true_lengths": False,
        "feature_logsoftmax": False,
    }
    return TextGroup(architectures=architectures or NAMES, **(options | changes))


def trunk_of(name, length=6, num_tokens=11, **changes):
    torch.manual_seed(0)
    return group_of(name, **changes).build_trunk(name, TokenFacts(length, num_tokens)).eval()


def test_order_of_the_group_is_that_of_the_papers():
    assert list(SIZES) == NAMES


@pytest.mark.parametrize("length", [80, 200])
@pytest.mark.parametrize("num_tokens", EMBEDDINGS)
@pytest.mark.parametrize("name", NAMES)
def test_sizes(name, num_tokens, length):
    with torch.device("meta"):
        model = group_of(name, embedding_dim=512, feature_dim=512).build(0, 4, TokenFacts(length, num_tokens))
        z, logits = model(torch.zeros(2, 3, dtype=torch.int64))
    assert model.backbone.embedding.weight.numel() == EMBEDDINGS[num_tokens]
    assert sum(p.numel() for p in model.backbone.parameters()) == SIZES[name] + EMBEDDINGS[num_tokens]
    assert sum(p.numel() for p in model.head.parameters()) == 2_052
    assert (model.backbone.num_features, z.shape, logits.shape) == (512, (2, 512), (2, 4))


@pytest.mark.parametrize("true_lengths", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_padding_row_learns_only_where_it_is_an_ordinary_token(name, true_lengths):
    trunk = trunk_of(name, true_lengths=true_lengths).train()
    ids = torch.tensor([[1, 2, 3, 0, 0, 0], [4, 5, 6, 7, 8, 9]])
    trunk(ids).square().sum().backward()
    silent = [key for key, p in trunk.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == ["rnn.weight_hh_l0_reverse"] * (name == "bilstm")
    gradient = trunk.embedding.weight.grad
    assert (not trunk.embedding.weight[0].any()) == (name in FROZEN_PADDING)
    assert gradient[0].any() == (name not in FROZEN_PADDING and not true_lengths)
    assert gradient[1].any()


@pytest.mark.parametrize("name", NAMES)
def test_true_lengths_make_the_answer_independent_of_padding(name):
    trunk = trunk_of(name, length=9, true_lengths=True)
    tokens = torch.tensor([3, 0, 5, 2])  # id 0 within a text counts, at its end it is padding
    short = trunk(tokens[None])
    for padding in (1, 5):
        padded = torch.cat([tokens, torch.zeros(padding, dtype=torch.int64)])
        # the same float32 sums in another order
        torch.testing.assert_close(trunk(torch.stack([padded, padded.clamp(min=1)]))[:1], short, rtol=1e-5, atol=1e-6)
    stated = trunk_of(name, length=9)
    padded = torch.cat([tokens, torch.zeros(5, dtype=torch.int64)])
    assert not torch.allclose(stated(padded[None]), stated(tokens[None]), rtol=1e-3)


@pytest.mark.parametrize("true_lengths", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_degenerate_sequences(name, true_lengths):
    """Nothing but padding, one position, a vocabulary of padding and one token: finite, also backwards."""
    for length, num_tokens in ((1, 2), (1, 5), (7, 2)):
        facts = TokenFacts(length, num_tokens)
        group = group_of(name, true_lengths=true_lengths)
        group.check(1, facts)
        model = group.build(0, 3, facts)
        z, logits = model(torch.stack([torch.zeros(length, dtype=torch.int64), torch.ones(length, dtype=torch.int64)]))
        logits.square().sum().backward()
        assert z.isfinite().all()
        assert all(p.grad.isfinite().all() for p in model.parameters())


def test_mean_embedding_by_hand():
    ids = torch.tensor([[1, 2, 0, 0]])
    for true_lengths, divisor in ((False, 4), (True, 2)):
        trunk = trunk_of("logistic_regression", length=4, true_lengths=true_lengths)
        weight = trunk.embedding.weight
        torch.testing.assert_close(trunk(ids)[0], (weight[1] + weight[2]) / divisor)
        full = trunk_of("fasttext", length=4, true_lengths=true_lengths)
        mean = (full.embedding.weight[1] + full.embedding.weight[2]) / divisor
        torch.testing.assert_close(full(ids)[0], full.linear(mean))


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_recurrent_features_are_the_last_state_of_the_upper_layer(name):
    trunk = trunk_of(name)
    ids = torch.tensor([[1, 2, 3, 4, 0, 0], [4, 5, 6, 7, 8, 9]])
    state = trunk.rnn(trunk.embedding(ids))[1]
    last = (state[0] if name == "lstm" else state)[-1]
    torch.testing.assert_close(trunk(ids), last.relu() if name == "lstm" else last)


def test_bilstm_joins_both_directions_at_the_last_position():
    """There the backward direction has read the last token alone, so the others reach it only forwards."""
    trunk = trunk_of("bilstm")
    seen = []
    trunk.linear.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    trunk(torch.tensor([[1, 2, 3, 4, 5, 6], [7, 7, 7, 7, 7, 6]]))
    forwards, backwards = seen[0].chunk(2, dim=1)
    torch.testing.assert_close(backwards[0], backwards[1])
    assert not torch.allclose(forwards[0], forwards[1])


def test_dropout_between_layers_and_behind_them():
    for name, rate in (("lstm", 0.2), ("gru", 0.2)):
        trunk = trunk_of(name)
        assert trunk.rnn.dropout == rate
        assert [m.p for m in trunk.modules() if isinstance(m, nn.Dropout)] == [rate]
    assert {m.p for m in trunk_of("transformer").modules() if isinstance(m, nn.Dropout)} == {0.1}
    for name in ("fasttext", "logistic_regression", "bilstm"):
        assert not any(isinstance(m, nn.Dropout) for m in trunk_of(name).modules())


def test_transformer_by_its_parts():
    trunk = trunk_of("transformer")
    ids = torch.tensor([[1, 2, 3, 4, 0, 0]])
    weight = trunk.embedding.weight
    assert weight.abs().max() <= 0.1
    assert weight.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.15)  # 176 draws: five standard errors
    positions = [[math.sin(p), math.cos(p), math.sin(p / 10_000**0.5), math.cos(p / 10_000**0.5)] for p in range(6)]
    torch.testing.assert_close(sinusoids(6, 4), torch.tensor(positions))
    x = weight[ids] * 4 + sinusoids(6, 16)
    for layer in trunk.encoder.layers:  # post-norm: x = norm(x + attention(x)), then x = norm(x + feed-forward(x))
        x = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
        x = layer.norm2(x + layer.linear2(layer.linear1(x).relu()))
    torch.testing.assert_close(trunk(ids), x[:, 0])
    layer = trunk_of("transformer", embedding_dim=512).encoder.layers[0]
    assert (layer.self_attn.num_heads, layer.linear1.out_features, layer.norm_first) == (8, 2048, False)


@pytest.mark.parametrize("true_lengths", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_each_network_learns_which_words_make_a_class(name, true_lengths):
    torch.manual_seed(0)
    model = group_of(name, true_lengths=true_lengths).build(0, 2, TokenFacts(8, 11))
    y = torch.arange(32) % 2
    ids = torch.randint(1, 6, (32, 8)) + 5 * y[:, None]  # words 1 to 5 in one class, 6 to 10 in the other
    ids[:, 5:] *= torch.rand(32, 3).round().long().cumprod(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids)[1], y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 < 0.4 < losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_log_softmax_stands_behind_the_pooled_features_of_four(name):
    ids = torch.tensor([[1, 2, 3, 4, 0, 0]])
    outputs = []
    for asked in (False, True):
        torch.manual_seed(0)
        group = group_of(name, feature_logsoftmax=asked, feature_dim=4)
        outputs.append(group.build(0, 3, TokenFacts(6, 11)).eval()(ids)[0])
    ends = name in ("fasttext", "lstm", "logistic_regression", "gru")
    torch.testing.assert_close(outputs[1], outputs[0].log_softmax(1) if ends else outputs[0])


def test_the_auxiliary_is_fasttext_whatever_the_client_has():
    context = ModelContext(group_of(feature_logsoftmax=True), 4, TokenFacts(6, 11))
    for client in range(6):
        model = SmallModel(None, 8, None).build(context, client)
        assert type(model.backbone).__name__ == "FastText"
        z, logits = model(torch.ones(2, 6, dtype=torch.int64))
        assert (z.shape, logits.shape) == ((2, 8), (2, 4))
        torch.testing.assert_close(z.exp().sum(1), torch.ones(2))
    with pytest.raises(ValueError, match="'fastext'.*nearest: fasttext"):
        SmallModel("fastext", None, None).build(context, 0)


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["lstmm"], {}, "'lstmm'.*nearest: lstm"),
        (["resnet18"], {}, "'resnet18'.*fasttext"),
        (["transformer"], {"embedding_dim": 20}, "embedding_dim=20: .*'transformer'.*8; the next is 24"),
        (["gru"], {"embedding_dim": 0}, "embedding_dim=0"),
        (["gru"], {"heads": []}, "heads is empty"),
    ],
)
def test_contradictions_are_refused(arguments, changes, message):
    with pytest.raises(ValueError, match=message):
        group_of(*arguments, **changes)
    assert group_of("gru", embedding_dim=20).embedding_dim == 20


@pytest.mark.parametrize(("facts", "message"), [((0, 5), "sequences of 0 tokens"), ((5, 1), "vocabulary of 1 entries")])
def test_impossible_sequences_are_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        group_of().check(10, TokenFacts(*facts))
