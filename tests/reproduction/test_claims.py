"""Verdicts from made-up runs whose numbers can be followed by hand."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from claims import main
from fedsaf.reproduction.claims.contrasts import CONTRASTS, SIDES, Estimate, estimate, verdict
from fedsaf.reproduction.claims.definition import claim_definitions, claims_of
from fedsaf.reproduction.claims.judging import _Gatherer, judge, judge_all
from fedsaf.reproduction.claims.text import document, effect_text
from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.selection import TableDefinition
from tests.reproduction.recorded import record_run

ROOT = Path(__file__).resolve().parents[2]
T2 = 4.302653
"""Student's t at 0.975 with two degrees of freedom."""
NOT_IN_THE_PAPER = {"saf-t3-half (CIFAR-100)"}
"""Claims of a text that the table of the same paper does not bear out."""


def judged(root, name, scale="full"):
    return judge(claim_definitions()[name], scale, *collect([root]))


def record_losses(root, hits, alphas=(0.1, 0.5, 1.0), **changes):
    """Record runs on CIFAR-10, one per loss, seed and alpha; hits by loss, then seed."""
    for loss, by_seed in hits.items():
        for seed, number in enumerate(by_seed):
            for alpha in alphas:
                choices = {"method": f"fedsaf_{loss}", "partition": "dirichlet", **changes.get("choices", {})}
                others = {key: value for key, value in changes.items() if key != "choices"}
                folder = root / f"{loss}_{seed}_{alpha}_{changes.get('scale', 'full')}"
                record_run(folder, number, choices=choices, seed=seed, partition={"alpha": alpha}, **others)


STRUCTURE = "saf-t3-structure (CIFAR-10)"
GAIN = {"gcsa": (62, 74, 53), "rcsa": (64, 74, 55), "mse": (60, 70, 50), "cosine": (60, 70, 50)}
"""Structural minus coordinate: 3, 4 and 4 points, though the seeds lie 20 points apart."""


def test_a_difference_is_paired_over_seeds(tmp_path):
    record_losses(tmp_path, GAIN)
    found = judged(tmp_path, STRUCTURE)
    assert (found.verdict, found.reason, len(found.runs)) == ("holds", "", 36)
    for effect in found.effects:
        half = T2 * math.sqrt(1 / 3) / math.sqrt(3)
        assert effect.estimate.mean == pytest.approx(11 / 3)
        assert effect.estimate.interval == pytest.approx((11 / 3 - half, 11 / 3 + half), abs=1e-5)
        assert (effect.estimate.n, effect.seeds) == (3, [0, 1, 2])
    assert [effect.part.name for effect in found.effects] == ["Dir(0.1)", "Dir(0.5)", "Dir(1.0)"]
    assert found.effects[0].printed == pytest.approx(1.64, abs=0.01)
    assert effect_text(found, found.effects[0]) == "Dir(0.1): +3.67 [+2.23, +5.10] points, n = 3 (paper +1.64)"


def test_the_other_direction_does_not_hold(tmp_path):
    swapped = {"gcsa": GAIN["mse"], "rcsa": GAIN["cosine"], "mse": GAIN["gcsa"], "cosine": GAIN["rcsa"]}
    record_losses(tmp_path, swapped)
    assert judged(tmp_path, STRUCTURE).verdict == "does not"


def test_an_interval_with_zero_is_undecided(tmp_path):
    record_losses(tmp_path, GAIN | {"gcsa": (62, 64, 53), "rcsa": (64, 64, 55)})
    found = judged(tmp_path, STRUCTURE)
    assert (found.verdict, found.reason) == ("undecided", "3 of 3 parts: the interval contains 0")


def test_one_seed_is_undecided(tmp_path):
    record_losses(tmp_path, {loss: hits[:1] for loss, hits in GAIN.items()})
    found = judged(tmp_path, STRUCTURE)
    assert found.verdict == "undecided"
    assert found.reason == "3 of 3 parts: one seed, which has no interval"
    assert found.effects[0].estimate.mean == pytest.approx(3)


def test_missing_runs_never_give_a_verdict(tmp_path):
    record_losses(tmp_path, GAIN, alphas=(0.1, 0.5))
    found = judged(tmp_path, STRUCTURE)
    assert (found.verdict, found.reason) == ("undecided", "1 of 3 parts: not run")
    assert [effect.verdict for effect in found.effects] == ["holds", "holds", "undecided"]
    for folder in tmp_path.glob("rcsa*"):
        (folder / "status.json").write_text('{"state": "running"}')
    found = judged(tmp_path, STRUCTURE)
    assert found.effects[0].estimate is None
    assert found.effects[0].reason == "1 of 4 places without a run that counts"
    assert any("rcsa_0_0.1_full: running" in note for note in found.effects[0].notes)


def test_a_part_against_the_claim_is_no_verdict_while_others_are_missing(tmp_path):
    record_losses(
        tmp_path, {"gcsa": GAIN["mse"], "rcsa": GAIN["mse"], "mse": GAIN["gcsa"], "cosine": GAIN["gcsa"]}, (0.1,)
    )
    found = judged(tmp_path, STRUCTURE)
    assert found.effects[0].verdict == "does not"
    assert found.verdict == "undecided"


def test_only_seeds_that_both_sides_have_count(tmp_path):
    record_losses(tmp_path, GAIN | {"mse": GAIN["mse"][:2]})
    (effect, *_) = judged(tmp_path, STRUCTURE).effects
    assert effect.seeds == [0, 1]
    assert effect.estimate.mean == pytest.approx(3.5)
    assert effect.notes == [f"{STRUCTURE}: only some places have seed 2"]


def test_scales_are_never_mixed(tmp_path):
    record_losses(tmp_path, {key: GAIN[key] for key in ("gcsa", "rcsa")}, scale="small")
    record_losses(tmp_path, {key: GAIN[key] for key in ("mse", "cosine")})
    for scale in ("small", "full"):
        found = judged(tmp_path, STRUCTURE, scale)
        assert found.verdict == "undecided"
        assert {effect.reason for effect in found.effects} == {"2 of 4 places without a run that counts"}


def test_runs_on_different_data_are_not_compared(tmp_path):
    record_losses(tmp_path, {key: GAIN[key] for key in ("gcsa", "rcsa")}, scale="small")
    stand_in = {"choices": {"dataset": "digits"}, "stand_in_for": "cifar10", "scale": "small"}
    record_losses(tmp_path, {key: GAIN[key] for key in ("mse", "cosine")}, **stand_in)
    found = judged(tmp_path, STRUCTURE, "small")
    assert found.effects[0].reason == "runs on different data: the named, digits"
    assert found.verdict == "undecided"


def test_sides_that_were_trained_differently_are_not_compared(tmp_path):
    record_losses(tmp_path, {key: GAIN[key] for key in ("gcsa", "rcsa")}, optimizer={"momentum": 0.9})
    record_losses(tmp_path, {key: GAIN[key] for key in ("mse", "cosine")}, optimizer={"momentum": 0.0})
    found = judged(tmp_path, STRUCTURE)
    assert found.verdict == "undecided"
    assert {effect.reason for effect in found.effects} == {"the sides were run with different optimizer.momentum"}


def test_a_largest_is_that_of_the_means_and_its_place_is_the_same_for_every_seed(tmp_path):
    """GCSA leads in seeds 0 and 1, RCSA in seed 2: the largest mean is GCSA's, (70 + 70 + 40) / 3."""
    record_losses(tmp_path, {"gcsa": (70, 70, 40), "rcsa": (50, 50, 60), "mse": (60, 60, 30), "cosine": (0, 0, 0)})
    found = judged(tmp_path, "saf-t3-half (CIFAR-10)")
    (effect,) = found.effects
    assert effect.estimate.mean == pytest.approx(0)
    (part,) = found.claim.parts
    high, _ = part.arms[:2]
    assert (high.take, len(high.spots)) == ("max", 2)
    arm = _Gatherer(found.claim, "full", *collect([tmp_path]), effect)._arm(high)
    assert arm == {0: 70, 1: 70, 2: 40}


def test_runs_of_other_splits_are_no_pairs(tmp_path):
    record_losses(tmp_path, GAIN)
    path = tmp_path / "mse_1_0.5_full" / "summary.json"
    path.write_text(path.read_text().replace('"partition_hash": "p"', '"partition_hash": "q"'))
    found = judged(tmp_path, STRUCTURE)
    assert [effect.verdict for effect in found.effects] == ["holds", "undecided", "holds"]
    assert found.effects[1].reason == "runs of one seed have different splits, so they are no pairs"


def test_bad_runs_are_named_and_give_no_verdict(tmp_path):
    record_losses(tmp_path, GAIN, alphas=(0.1,))
    nan = tmp_path / "gcsa_0_0.1_full" / "metrics.jsonl"
    nan.write_text(nan.read_text().replace("0.62", "NaN"))
    record_run(tmp_path / "twin", 61, choices={"method": "fedsaf_mse"}, seed=0)
    (effect, *_) = judged(tmp_path, STRUCTURE).effects
    assert effect.estimate is None
    assert any("NaN" in text and text.startswith("gcsa_0_0.1_full") for text in effect.problems)
    assert any("different results" in text for text in effect.problems)
    text = document(judge_all([claim_definitions()[STRUCTURE]], ["full"], *collect([tmp_path])), "")
    assert "- **does not count**: gcsa_0_0.1_full: metrics.jsonl, line 2: is damaged: holds NaN" in text


def test_bytes_are_decided_by_one_run(tmp_path):
    shared = {"dataset": "cifar100", "model_group": "htfe4"}
    record_run(tmp_path / "gcsa", choices=shared, rounds=3)
    record_run(tmp_path / "fedproto", choices={**shared, "method": "fedproto", "alignment": "mse_instance"}, rounds=3)
    found = judged(tmp_path, "saf-t9-upload")
    assert (found.verdict, [effect.estimate.mean for effect in found.effects]) == ("holds", [1.0, 1.0])
    assert judged(tmp_path, "saf-t9-time").reason == "one seed, which has no interval"
    for method in ("fml", "fedkd", "fedmrl"):
        record_run(tmp_path / method, choices={**shared, "method": method}, rounds=3)
    assert judged(tmp_path, "saf-t9-models").verdict == "does not"  # the made-up traffic is the same


def record_dimensions(root, setting, numbers, share):
    start = "per_architecture" if setting == "homo_shared" else "independent"
    protocol = {"num_clients": 9, "rounds": 50, "protocol": {"initialisation": start}}
    for seed, number in enumerate(numbers):
        diagnostics = {"effective_dimension": number, "coordinate": 2.0, "rigid": 2 * (share + seed / 100)}
        choices = {"scenario": setting}
        record_run(root / f"{setting}{seed}", choices=choices, seed=seed, diagnostics=diagnostics, **protocol)


def test_orders_and_shares_from_diagnostics(tmp_path):
    record_dimensions(tmp_path, "hetero_local", (40, 41, 43), 0.5)
    record_dimensions(tmp_path, "homo_local", (30, 31, 32), 0.3)
    record_dimensions(tmp_path, "homo_shared", (10, 13, 12), 0.02)
    found = judged(tmp_path, "saf-f1-dimensions")
    assert found.verdict == "holds"
    assert [effect.estimate.mean for effect in found.effects] == pytest.approx([31 / 3, 58 / 3])
    found = judged(tmp_path, "saf-f1-rigid")
    half = T2 * 0.01 / math.sqrt(3)
    assert found.effects[0].estimate.interval == pytest.approx((0.03 - half, 0.03 + half), abs=1e-6)
    assert found.verdict == "holds"
    assert judged(tmp_path, "saf-f1-rigid-more").effects[0].estimate.mean == pytest.approx(0.48)


def test_an_order_that_is_wrong_in_one_place_does_not_hold(tmp_path):
    record_dimensions(tmp_path, "hetero_local", (40, 41, 43), 0.5)
    record_dimensions(tmp_path, "homo_local", (10, 11, 12), 0.3)
    record_dimensions(tmp_path, "homo_shared", (30, 33, 32), 0.02)
    found = judged(tmp_path, "saf-f1-dimensions")
    assert [effect.verdict for effect in found.effects] == ["holds", "does not"]
    assert found.verdict == "does not"


def test_silhouettes_from_recorded_prototypes(tmp_path):
    """Two clients far apart, each with two classes near each other: prototypes cluster by client."""
    means = np.array([[0.0, 0], [0, 1], [100, 0], [100, 1]], dtype=np.float32)
    tensors = {"client": np.array([0, 0, 1, 1]), "labels": np.array([0, 1, 0, 1]), "means": means}
    for seed in range(2):
        save_file(tensors, record_run(tmp_path / f"run{seed}", seed=seed) / "uploads_prototypes.safetensors")
    found = judged(tmp_path, "saf-f7-client")
    # By client: within 1, to the other client (100 + 100.005) / 2. By class: within 100, to the other 50.5.
    by_client, by_class = 1 - 1 / 100.0025, (1 + 100.005) / 2 / 100 - 1
    assert found.effects[0].estimate.mean == pytest.approx(by_client - by_class, abs=1e-4)
    assert found.verdict == "holds"
    (tmp_path / "run1" / "uploads_prototypes.safetensors").unlink()
    found = judged(tmp_path, "saf-f7-client")
    assert found.reason == "one seed, which has no interval"
    assert found.effects[0].problems[0].startswith("run1 has no uploads_prototypes.safetensors")


def test_larger_networks_gain_more_by_hand(tmp_path):
    """Client 0 trains the smaller, client 1 the larger network."""
    group = {"architectures": ["resnet4", "resnet6", "resnet8"]}
    for seed in range(3):
        for name, hits in (("gcsa", (60, 90)), ("rcsa", (60, 90)), ("local", (50, 60 + seed))):
            choices = {"method": name if name == "local" else f"fedsaf_{name}"}
            folder = record_run(tmp_path / f"{name}{seed}", 70, choices=choices, seed=seed, model_group=group)
            rows = [json.loads(line) for line in (folder / "clients.jsonl").read_text().splitlines()]
            for row in rows:
                row |= {"architecture": ["resnet4", "resnet8"][row["client"]], "classifier": hits[row["client"]] / 100}
            (folder / "clients.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = judged(tmp_path, "saf-f6-large (CIFAR-10)")
    # 30 points apart with alignment; 10, 11 and 12 without.
    assert found.effects[0].estimate.mean == pytest.approx(19)
    assert found.verdict == "holds"


def test_contrasts_by_hand():
    assert CONTRASTS["trend"].combine([5, 4, 7, 4, 9, 4]) == pytest.approx(2)
    assert CONTRASTS["trend"].combine([5, 4, 7, 4]) == pytest.approx(2)
    found = estimate([math.log(2), math.log(8)], "ratio", exact=False)
    assert found.mean == pytest.approx(4)
    half = 12.7062047 * math.log(4) / math.sqrt(2) / math.sqrt(2)
    assert found.interval == pytest.approx((4 / math.exp(half), 4 * math.exp(half)), rel=1e-6)
    with pytest.raises(ValueError, match="expected positive"):
        CONTRASTS["ratio"].combine([1, 0])


@pytest.mark.parametrize(
    ("interval", "side", "exact", "expected"),
    [
        ((1, 2), "above", False, "holds"),
        ((-2, -1), "above", False, "does not"),
        ((0, 1), "above", False, "undecided"),
        ((0, 0), "above", True, "does not"),
        ((-2, -1), "below", False, "holds"),
        ((1, 2), "below", False, "does not"),
        ((-1, 1), "below", False, "undecided"),
        ((-1, 0), "at_most", False, "holds"),
        ((1, 2), "at_most", False, "does not"),
        ((-1, 1), "at_most", False, "undecided"),
        (None, "above", False, "undecided"),
    ],
)
def test_where_an_interval_lies_decides(interval, side, exact, expected):
    assert verdict(Estimate(0, interval, 3), side, 0, exact) == expected


def test_the_papers_own_numbers_bear_out_the_claims():
    """So the definitions compare what the papers compare: places, direction and bound."""
    wrong, num_printed = set(), 0
    for name, claim in claim_definitions().items():
        for part in claim.parts:
            printed = claim.printed(part)
            if printed is not None:
                num_printed += 1
                if SIDES[claim.side](printed, printed, claim.bound, True) != "holds":
                    wrong.add(name)
    assert wrong == NOT_IN_THE_PAPER
    assert num_printed > 80


def test_every_place_is_one_that_the_sweep_of_its_table_or_figure_runs():
    for name, claim in claim_definitions().items():
        source = claim.source
        if isinstance(source, TableDefinition):
            cells = itertools.product(source.rows, source.columns)
            places = [(source.labels(row, column), {}) for row, column in cells]
        else:
            places = [(place.labels, place.values) for place in source.places()]
        for spot in (spot for part in claim.parts for arm in part.arms for spot in arm.spots):
            assert (spot.labels, spot.values) in places, f"{name}: {spot.name}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "saf-t99"}, "claim x: source is 'saf-t99', expected one of saf-f1"),
        ({"test": "guess"}, "claim x: test is 'guess', expected one of difference"),
        ({"side": "beside"}, "claim x: side is 'beside'"),
        ({"high": {"take": "median", "method": "FedSAF-GCSA"}}, "claim x: take is 'median', expected one of mean"),
        ({"high": {"method": "FedSAF-XYZ"}}, "claim x: method 'FedSAF-XYZ' is not in the vocabulary"),
        ({"high": {"loss": "GCSA"}}, "claim x: loss is neither an axis nor swept by saf-t3"),
        ({"number": "luck"}, "claim x: number is 'luck', expected one of best"),
        ({"source": "saf-f5"}, "claim x: gamma, lambda has no value"),
    ],
)
def test_a_definition_that_cannot_be_meant(change, message):
    entry = {
        "claim": "",
        "paper": "",
        "source": "saf-t3",
        "lines": {"dataset": ["CIFAR-100"], "partition": ["Dir(0.1)"]},
        "test": "difference",
        "high": {"method": "FedSAF-GCSA"},
        "low": {"method": "FedSAF-MSE"},
    }
    assert len(list(claims_of("x", entry))) == 1
    with pytest.raises(ValueError, match="^claim x: ") as error:
        list(claims_of("x", entry | change))
    assert message in str(error.value)


def test_an_empty_folder_gives_a_page_without_a_verdict(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    assert main([str(tmp_path / "runs"), "--output", str(tmp_path / "docs" / "claims.md")]) == 0
    text = (tmp_path / "docs" / "claims.md").read_text()
    lines = [
        line for line in text.splitlines() if line.startswith("| ") and " claim |" not in line and "---" not in line
    ]
    assert len(lines) == len(claim_definitions())
    assert all(line.endswith("| undecided: not run |") and "| none |" in line for line in lines)
    assert f"0 holds, 0 does not, {len(lines)} undecided, of which {len(lines)} not run" in text
    assert "0 finished runs" in capsys.readouterr().out


def test_a_claim_has_a_line_for_each_scale_with_runs(tmp_path):
    record_losses(tmp_path / "runs", GAIN)
    record_losses(tmp_path / "runs", GAIN, scale="small")
    main([str(tmp_path / "runs"), "--output", str(tmp_path / "claims.md")])
    lines = [
        line
        for line in (tmp_path / "claims.md").read_text().splitlines()
        if "| CIFAR-10: structural alignment (" in line
    ]
    assert [line.split("|")[3].strip() for line in lines] == [
        f"{scale}: 36 runs, seeds 0, 1, 2" for scale in ("small", "full")
    ]
    assert all(line.endswith("| **holds** |") for line in lines)


def test_a_fault_ends_in_an_error(tmp_path, capsys):
    (record_run(tmp_path / "runs" / "run") / "summary.json").unlink()
    assert main([str(tmp_path / "runs"), "--output", str(tmp_path / "claims.md")]) == 1
    assert "summary.json is missing" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "nowhere"), "--output", str(tmp_path / "claims.md")])


def test_the_committed_page_names_every_claim():
    text = (ROOT / "docs" / "claims.md").read_text()
    missing = [name for name, claim in claim_definitions().items() if f"| {claim.text} ({claim.paper}) |" not in text]
    assert not missing, "make claims writes the page anew"
