"""Accuracy per domain, on rows whose numbers can be followed by hand."""

import json

import pytest

from fedsaf.core.types import RoundRecord
from fedsaf.tracking.closing import MAX_DOMAINS, run_table, wide_console
from fedsaf.tracking.recorder import Recorder
from fedsaf.tracking.summary import client_domains, domain_accuracies

SIZES = (10, 30, 60)
GROUPS = ["photo", "sketch", "photo"]


def rows_of(round, hits, rule="classifier", sizes=SIZES):
    return [
        {"round": round, "client": i, "num_test": n, rule: h / n if n and h is not None else None}
        for i, (h, n) in enumerate(zip(hits, sizes, strict=True))
    ]


def test_clients_of_one_domain_are_pooled_and_domains_count_the_same():
    entry = domain_accuracies(rows_of(1, (10, 15, 4)), GROUPS, ["classifier"])["classifier"]["best"]
    # photo: 10 of 10 and 4 of 60 are 14 of 70; sketch: 15 of 30.
    assert entry == {"round": 1, "accuracy": {"photo": 14 / 70, "sketch": 0.5}, "mean": pytest.approx(0.35)}


def test_the_best_round_is_that_of_the_unweighted_mean():
    # Pooled, round 1 has 70 hits and round 2 has 65; the domains' mean is 0.5 in round 1, (0.5 + 1) / 2 in round 2.
    rows = rows_of(1, (10, 0, 60)) + rows_of(2, (5, 30, 30))
    both = domain_accuracies(rows, GROUPS, ["classifier"])["classifier"]
    assert (both["best"]["round"], both["best"]["mean"]) == (2, 0.75)
    rows += rows_of(3, (0, 30, 35)) + rows_of(4, (0, 0, 0))
    both = domain_accuracies(rows, GROUPS, ["classifier"])["classifier"]
    assert (both["best"]["round"], both["last"]["round"], both["last"]["mean"]) == (2, 4, 0.0)


def test_an_accuracy_before_training_is_the_best_only_if_alone():
    before = rows_of(0, (10, 30, 60))
    assert domain_accuracies(before, GROUPS, ["classifier"])["classifier"]["best"]["round"] == 0
    assert domain_accuracies(before + rows_of(1, (1, 1, 1)), GROUPS, ["classifier"])["classifier"]["best"]["round"] == 1


def test_rounds_and_rules_that_were_not_evaluated_have_no_number():
    rows = rows_of(1, (10, 30, 60)) + rows_of(2, (None, None, None))
    result = domain_accuracies(rows, GROUPS, ["classifier", "nearest_prototype"])
    assert result["classifier"]["last"]["round"] == 1
    assert result["nearest_prototype"] is None


def test_a_domain_without_a_test_sample_has_no_part_in_the_mean():
    rows = rows_of(1, (5, 0, 6), sizes=(10, 0, 60))
    entry = domain_accuracies(rows, GROUPS, ["classifier"])["classifier"]["best"]
    assert entry["accuracy"] == {"photo": 11 / 70, "sketch": None}
    assert entry["mean"] == 11 / 70


def test_clients_without_domains_or_with_one_have_no_report():
    assert client_domains(None) is None
    assert client_domains({"num_clients": 2}) is None
    assert client_domains({"num_clients": 2, "client_groups": ["photo", "photo"], "rule": "ByDomain"}) is None
    assert client_domains({"num_clients": 2, "client_groups": ["ROMEO", "JULIET"], "rule": "ByUser"}) is None
    with pytest.raises(ValueError, match="client_groups: got 2 names, expected one for each of 3"):
        client_domains({"num_clients": 3, "client_groups": ["photo", "sketch"], "rule": "ByDomain"})


def finished(folder, groups, hits):
    sizes = [10] * len(groups)
    folder.mkdir()
    content = {"num_clients": len(groups), "client_groups": groups, "rule": "ByDomain"}
    (folder / "partition.json").write_text(json.dumps(content))
    recorder = Recorder(folder)
    for round, of_round in enumerate(hits, start=1):
        metrics = {"classifier": {"pooled": sum(of_round) / sum(sizes), "client_mean": 0.5}}
        recorder.append(RoundRecord(round, metrics, rows_of(round, of_round, sizes=sizes), {"total": 2.0 * round}))
    return recorder.summarise("c", "p", {})


def printed(summary):
    console = wide_console()
    with console.capture() as capture:
        console.print(run_table(summary))
    lines = [line.split("│")[1:-1] for line in capture.get().splitlines() if "│" in line]
    return [[cell.strip() for cell in line] for line in lines], " ".join(capture.get().split())


def test_the_table_of_a_run_names_every_domain_and_their_mean(tmp_path):
    summary = finished(tmp_path / "run", ["photo", "sketch", "photo"], [(9, 2, 9), (4, 8, 6)])
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    lines, text = printed(summary)
    assert lines == [
        ["classifier", "60.00 (50.00)", "66.67 (50.00)", "1"],
        ["photo", "50.00", "50.00", "2"],
        ["sketch", "80.00", "80.00", "2"],
        ["mean over 2 domains", "65.00", "65.00", "2"],
    ]
    assert "median 3.0 s per round" in text


def test_hundreds_of_users_are_one_line(tmp_path):
    groups = [f"role {i}" for i in range(MAX_DOMAINS + 1)]
    lines, _ = printed(finished(tmp_path / "run", groups, [[5] * len(groups)]))
    assert [line[0] for line in lines] == ["classifier", f"mean over {len(groups)} domains"]
