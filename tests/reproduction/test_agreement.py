"""What is compared has all in common that no label names; at scale full, what no label names is as in the paper."""

import pytest

from fedsaf.reproduction.agreement import added_words
from fedsaf.reproduction.claims.definition import claim_definitions
from fedsaf.reproduction.claims.judging import judge
from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.render import markdown
from fedsaf.reproduction.selection import table_definitions
from fedsaf.reproduction.tables import fill
from tests.reproduction.recorded import record_run

CHANGES = {
    "num_clients": {"num_clients": 5},
    "partition.seed": {"partition": {"seed": 7}},
    "dataset.max_samples": {"dataset": {"max_samples": 5000}},
    "dataset.image_size": {"dataset": {"max_samples": None, "image_size": 8}},
    "eval_every": {"eval_every": 3},
    "augment.name": {"augment": {"name": "flip"}},
    "model_group.architectures": {"model_group": {"architectures": ["cnn"]}},
    "optimizer.momentum": {"optimizer": {"lr": 0.01, "momentum": 0.9}},
    "protocol.last_batch": {"protocol": {"last_batch": "merge"}},
    "fabric.precision": {"fabric": {"precision": "bf16-mixed"}},
}
"""Values that no label of Table III at scale small names, each as one side has it and the other has not."""
LOSSES = ("mse", "cosine", "gcsa", "rcsa")


def record_losses(root, changes, changed):
    for loss in LOSSES:
        for seed in (0, 1, 2):
            for alpha in (0.1, 0.5, 1.0):
                own = {"partition": {}} | (changes if loss in changed else {})
                own["partition"] = {"alpha": alpha} | own["partition"]
                choices = {"method": f"fedsaf_{loss}", "alignment": loss, "partition": "dirichlet"}
                hits = 50 + 5 * (loss in ("gcsa", "rcsa")) + seed % 2
                record_run(root / f"{loss}{seed}{alpha}", hits, choices=choices, seed=seed, scale="small", **own)


def verdict(root):
    return judge(claim_definitions()["saf-t3-structure (CIFAR-10)"], "small", *collect([root]))


def first_column(root):
    table = fill(table_definitions()["saf-t3"], "small", *collect([root]))
    return table, [row[0] for row in table.cells]


def test_sides_that_agree_are_compared_and_ranked(tmp_path):
    record_losses(tmp_path, {}, ())
    assert verdict(tmp_path).verdict == "holds"
    _, column = first_column(tmp_path)
    assert [cell.rank for cell in column] == [3, 3, 1, 1]
    assert not any(cell.notes for cell in column)


@pytest.mark.parametrize("key", CHANGES)
def test_sides_that_differ_in_what_no_label_names_are_neither_judged_nor_ranked(tmp_path, key):
    record_losses(tmp_path, CHANGES[key], ("mse", "cosine"))
    found = verdict(tmp_path)
    assert found.verdict == "undecided"
    assert {effect.reason for effect in found.effects} == {f"the sides were run with different {key}"}
    table, column = first_column(tmp_path)
    assert [cell.rank for cell in column] == [None] * 4
    assert all(cell.ours is not None for cell in column)
    note = f"no fair comparison: the rows of this column were run with different {key}"
    assert all(note in cell.notes for cell in column)
    assert note in markdown(table)


def test_tokens_and_word_counts_are_not_ranked_together(tmp_path):
    shared = {"scale": "small", "partition": {"clients_per_domain": 1}}
    for loss, dataset, group in (("mse", "amazon_review", "htfe6_txt"), ("gcsa", "amazon_review_counts", "amazon_mlp")):
        choices = {"method": f"fedsaf_{loss}", "alignment": loss, "dataset": dataset, "partition": "by_domain"}
        form = {"dataset": {"form": "tokens" if loss == "mse" else "counts"}}
        record_run(tmp_path / loss, choices=choices | {"model_group": group}, **shared | form)
    table = fill(table_definitions()["saf-t5"], "small", *collect([tmp_path]))
    filled = [cell for cell in table if cell.ours]
    assert len(filled) == 2
    assert all(cell.rank is None and "different dataset.form" in cell.notes[0] for cell in filled)


@pytest.mark.parametrize(
    "word",
    [
        "optimizer.momentum=0.9",
        "protocol.train_fraction=0.9",
        "alignment.temperature=2",
        "model_group.architectures=[cnn]",
        "+dataset.max_per_class=20",
        "optimizer=sgd_moon",
        "augment=flip",
        "fabric.precision=bf16-mixed",
        "levels=none",
    ],
)
def test_a_word_that_leaves_the_papers_experiment_keeps_a_run_out_of_scale_full(tmp_path, word):
    choices = {"method": "fedproto", "alignment": "mse_instance"}
    record_run(tmp_path / "run", choices=choices, words=["experiment=table_1", "scale=full", word])
    record_run(tmp_path / "small", choices=choices, words=[word], scale="small")
    table = fill(table_definitions()["saf-t1"], "full", *collect([tmp_path]))
    assert table.num_filled == 0
    (problem,) = {problem for cell in table for problem in cell.problems}
    assert problem.startswith(f"run: {word} is not of the paper's experiment; start it without")
    assert fill(table_definitions()["saf-t1"], "small", *collect([tmp_path])).num_filled == 1


def test_words_that_labels_name_or_that_change_no_number_leave_a_run_in(tmp_path):
    words = [
        *("experiment=table_8", "scale=full", "method=fedsaf_gcsa", "dataset=cifar10", "seed=0", "partition.alpha=0.1"),
        *("fabric.threads=1", "fabric=default", "logger=none", "progress=false", "results_root=here", "store=disk"),
        *(
            "eval_batch_size=50",
            "diagnostics_every=1",
            "hydra/launcher=joblib",
            "hydra.launcher.n_jobs=2",
            "dataset.path=there",
        ),
    ]
    record_run(tmp_path / "run", words=words)
    table = fill(table_definitions()["saf-t8"], "full", *collect([tmp_path]))
    assert table.num_filled == 1
    ((run,), _) = collect([tmp_path])
    both = {"alignment.proto_weight": 1.0, "alignment.inst_weight": 1.0}
    assert added_words(run, {"partition.alpha": 0.1, **both}) == []
    assert added_words(run, both) == ["partition.alpha=0.1"]


def test_runs_in_which_a_client_failed_say_so(tmp_path):
    folder = record_run(tmp_path / "run")
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('"round": 2', '"failed_clients": [1], "round": 2', 1))
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace('"num_failed_clients": 0', '"num_failed_clients": 1'))
    (cell,) = (cell for cell in fill(table_definitions()["saf-t3"], "full", *collect([tmp_path])) if cell.ours)
    assert cell.notes == ["run: a client failed and was left out, 1 times in all"]


@pytest.mark.parametrize(("setting", "filled"), [("fedproc_cifar100", 1), ("fedproc_cifar10", 0)])
def test_data_stand_in_a_table_of_fedproc_with_the_setting_that_is_theirs(tmp_path, setting, filled):
    choices = {"paper": "fedproc", "scenario": setting, "model_group": "moon_cnn", "dataset": "cifar100"}
    choices |= {"method": "moon", "partition": "dirichlet_0.5"}
    changes = {"num_clients": 10, "batch_size": 64, "local_epochs": 10, "rounds": 100}
    changes["partition"] = {"alpha": 0.5, "seed": 0, "generator": "numpy"}
    record_run(tmp_path / "run", choices=choices, words=[f"scenario={setting}", "dataset=cifar100"], **changes)
    assert fill(table_definitions()["proc-t2"], "full", *collect([tmp_path])).num_filled == filled


def test_runs_from_other_places_of_the_same_data_are_compared(tmp_path):
    for loss, path in (("mse", "here"), ("gcsa", "there")):
        choices = {"method": f"fedsaf_{loss}", "alignment": loss}
        record_run(tmp_path / loss, choices=choices, dataset={"max_samples": None, "path": path}, scale="small")
    _, column = first_column(tmp_path)
    assert [cell.rank for cell in column if cell.ours] == [1, 1]
