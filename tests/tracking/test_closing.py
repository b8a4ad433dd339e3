import math

import pytest
from omegaconf import OmegaConf

from fedsaf.tracking.closing import (
    ABSENT,
    Run,
    cells,
    closing_table,
    failures,
    read_run,
    run_table,
    settings_of,
    wide_console,
)
from fedsaf.tracking.recorder import Recorder


@pytest.fixture
def make_run(tmp_path, make_record):
    """Return a builder of finished run folders; ``hits`` are of the last round, out of 100."""

    def build(name, hits, seed, alignment="rcsa", finish=True, **config):
        recorder = Recorder(tmp_path / name)
        recorder.append(make_record(1, hits=(5, hits - 5)))
        choices = {"method": "prototype", "alignment": alignment, "partition": "iid", "dataset": "digits"}
        method = {"name": "prototype", "reads": ["alignment", "prototype"], "loss": alignment}
        content = {"seed": seed, "rounds": 1, "batch_size": 10, "method": method, **config, "choices": choices}
        OmegaConf.save({"overrides": [f"seed={seed}"], **content}, tmp_path / name / "config.yaml")
        if finish:
            recorder.summarise(name, "p", {})
            recorder.status("finished")
        else:
            recorder.status("failed", reason="ValueError: no")
        return tmp_path / name

    return build


def printed(table):
    console = wide_console()
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def table_rows(runs, predictor="classifier", measure="pooled"):
    table = closing_table(runs, predictor, measure)
    names = [column.header for column in table.columns]
    columns = [list(column.cells) for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def test_a_method_stands_under_the_name_that_says_what_it_is(make_run):
    (row,) = table_rows([read_run(make_run("a", 60, 0, method={"name": "prototype_lexical", "reads": ["alignment"]}))])
    assert row["method"] == "prototype_lexical"


def test_mean_and_population_deviation_by_hand(make_run):
    runs = [read_run(make_run(f"r{seed}", hits, seed)) for seed, hits in enumerate((60, 70, 80))]
    # Mean 70; squared deviations 100, 0, 100 over three: sqrt(200 / 3).
    (row,) = table_rows(runs)
    assert row == {
        "method": "prototype",
        "alignment": "rcsa",
        "partition": "iid",
        "best": f"70.00 ± {math.sqrt(200 / 3):.2f}",
        "last": "70.00 ± 8.16",
        "n": "3",
        "jobs": "3 finished",
    }


def test_cells_are_told_apart_by_what_differs_and_no_more(make_run):
    runs = [
        read_run(make_run("a0", 60, 0)),
        read_run(make_run("a1", 70, 1)),
        read_run(make_run("b0", 40, 0, alignment="mse")),
        read_run(make_run("c0", 50, 0, batch_size=20)),
    ]
    rows = table_rows(runs)
    assert [(row["alignment"], row["batch_size"], row["n"]) for row in rows] == [
        ("rcsa", "10", "2"),
        ("mse", "10", "1"),
        ("rcsa", "20", "1"),
    ]
    assert "dataset" not in rows[0]
    assert "seed" not in rows[0]


def test_a_nested_swept_value_names_a_cell_in_runs_that_left_it_alone(make_run):
    runs = [
        read_run(make_run("a", 60, 0, optimizer={"lr": 0.1})),
        read_run(make_run("b", 70, 0, optimizer={"lr": 0.01}, overrides=["optimizer.lr=0.01"])),
    ]
    assert [row["lr"] for row in table_rows(runs)] == ["0.1", "0.01"]


def test_off_a_terminal_no_word_is_broken(make_run):
    runs = [read_run(make_run(f"r{i}", 60, 0, alignment=f"{'long' * 20}-{i}")) for i in range(2)]
    text = printed(closing_table(runs, "classifier", "pooled"))
    assert all(f"{'long' * 20}-{i}" in text for i in range(2))


def test_a_cell_that_did_not_run_has_no_number(make_run, tmp_path):
    runs = [
        read_run(make_run("ok", 60, 0)),
        read_run(make_run("bad0", 90, 0, alignment="mse", finish=False)),
        read_run(make_run("bad1", 90, 1, finish=False)),
        read_run(tmp_path / "nowhere"),
    ]
    rows = {row["alignment"]: row for row in table_rows(runs)}
    assert (rows["mse"]["best"], rows["mse"]["n"], rows["mse"]["jobs"]) == (ABSENT, "0", "1 failed")
    assert (rows["rcsa"]["best"], rows["rcsa"]["n"], rows["rcsa"]["jobs"]) == (
        "60.00",
        "1",
        "1 finished, 1 failed",
    )
    assert rows[ABSENT]["best"] == ABSENT
    assert rows[ABSENT]["jobs"] == "1 missing"
    assert failures(runs) == ["failed: seed=0: ValueError: no", "failed: seed=1: ValueError: no"]


def test_a_summary_left_by_an_earlier_run_of_a_failed_one_is_not_shown(make_run):
    folder = make_run("a", 60, 0)
    Recorder(folder).status("failed", reason="ValueError: no")
    assert table_rows([read_run(folder)])[0]["best"] == ABSENT


def test_a_rule_that_was_not_evaluated_has_no_number(make_run):
    (row,) = table_rows([read_run(make_run("a", 60, 0))], predictor="nearest_prototype")
    assert (row["best"], row["n"], row["jobs"]) == (ABSENT, "0", "1 finished")


def test_the_same_run_counts_once_and_hidden_differences_are_not_averaged(make_run):
    run = read_run(make_run("a", 60, 0))
    other = read_run(make_run("b", 80, 0, optimizer={"lr": 0.1}))
    assert table_rows([run, run])[0]["n"] == "1"
    assert [settings["config"] for settings, _ in cells([run, other])] == [run.cell[:8], other.cell[:8]]


def test_what_changes_no_number_makes_no_cell(make_run):
    runs = [read_run(make_run("a", 60, 0)), read_run(make_run("b", 80, 1, checkpoint_overhead=0.5))]
    (row,) = table_rows(runs)
    assert (row["n"], row["best"]) == ("2", "70.00 ± 10.00")


def test_the_header_says_which_accuracy(make_run):
    runs = [read_run(make_run("a", 60, 0))]
    text = printed(closing_table(runs, "classifier", "client_mean"))
    assert "classifier accuracy in %, client mean: mean ± std over n seeds" in text
    # 5 of 10 and 55 of 90: the mean over clients is 55.56, not the pooled 60.
    assert "55.56" in text


def test_table_of_a_single_run(tmp_path, make_record):
    recorder = Recorder(tmp_path)
    recorder.append(make_record(1, hits=(10, 60), prototype_hits=(8, 0)))
    recorder.append(make_record(2, hits=(5, 45), prototype_hits=(0, 9)))
    text = printed(run_table(recorder.summarise("c", "p", {})))
    lines = [line.split("│") for line in text.splitlines() if "│" in line]
    assert [[cell.strip() for cell in line[1:-1]] for line in lines] == [
        ["classifier", "50.00 (50.00)", "70.00 (83.33)", "1"],
        ["nearest prototype", "9.00 (5.00)", "9.00 (5.00)", "2"],
    ]
    assert "after 2 rounds" in text
    assert "uploaded 0.00 MiB" in text
    assert "client 4.0, server 1.0, evaluation 0.5, data 2.0, total 8.0" in " ".join(text.split())


def test_a_choice_that_the_method_does_not_read_names_no_cell():
    def run(method, **groups):
        choices = {"method": method, "alignment": "rcsa", "prototype": "mean", "partition": "iid"}
        return Run({"choices": choices, "overrides": [], "method": groups}, "finished", None, "", "")

    both = {"fixes": ["alignment"], "reads": ["prototype"]}
    settings = settings_of(
        [run("fedavg", reads=[]), run("prototype", reads=["alignment", "prototype"]), run("x", **both)]
    )
    assert [s["alignment"] for s in settings] == ["-", "rcsa", "rcsa"]
    assert [s["prototype"] for s in settings] == ["-", "mean", "mean"]
