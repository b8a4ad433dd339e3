import json

import pytest

from fedsaf.core.files import read_json
from fedsaf.core.types import RoundRecord
from fedsaf.tracking.recorder import Recorder, read_rows


def fill(recorder, make_record, rounds):
    for round in rounds:
        recorder.append(make_record(round))


def contents(folder):
    return {name: (folder / name).read_bytes() for name in ("metrics.jsonl", "clients.jsonl", "timing.jsonl")}


def test_round_trip(tmp_path, make_record):
    recorder = Recorder(tmp_path / "run")
    record = make_record(0)
    recorder.append(record)
    assert recorder.rows() == [record.metrics]
    assert recorder.client_rows() == record.clients
    assert read_rows(tmp_path / "run" / "timing.jsonl") == [{**record.timing, "round": 0}]


def test_time_is_not_in_the_deterministic_files(tmp_path, make_record):
    fast, slow = Recorder(tmp_path / "fast"), Recorder(tmp_path / "slow")
    record = make_record(0)
    fast.append(record)
    slow.append(RoundRecord(0, record.metrics, record.clients, {"client": 99.0}))
    one, two = contents(fast.folder), contents(slow.folder)
    assert one["metrics.jsonl"] == two["metrics.jsonl"]
    assert one["clients.jsonl"] == two["clients.jsonl"]
    assert one["timing.jsonl"] != two["timing.jsonl"]


@pytest.mark.parametrize("torn", [b"", b'{"round": 6, "cohort": [0', b'{"round": 6}'])
def test_killed_and_resumed_is_byte_identical(tmp_path, make_record, torn):
    straight, killed = Recorder(tmp_path / "straight"), Recorder(tmp_path / "killed")
    fill(straight, make_record, range(7))
    fill(killed, make_record, range(6))
    for name in ("metrics.jsonl", "clients.jsonl", "timing.jsonl"):
        with (killed.folder / name).open("ab") as file:
            file.write(torn)
    resumed = Recorder(killed.folder)
    resumed.truncate(4)
    assert [row["round"] for row in resumed.rows()] == [0, 1, 2, 3, 4]
    fill(resumed, make_record, range(5, 7))
    assert contents(resumed.folder) == contents(straight.folder)


def test_truncate_to_nothing_starts_again(tmp_path, make_record):
    first = Recorder(tmp_path)
    fill(first, make_record, range(3))
    first.summarise("c", "p", {})
    again = Recorder(tmp_path)
    again.truncate(-1)
    assert contents(tmp_path) == dict.fromkeys(contents(tmp_path), b"")
    assert not (tmp_path / "summary.json").exists()
    fill(again, make_record, range(2))
    assert [row["round"] for row in again.rows()] == [0, 1]


def test_truncate_refuses_records_that_do_not_reach_the_checkpoint(tmp_path, make_record):
    fill(Recorder(tmp_path), make_record, range(3))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint is at round 4.*rounds \[0, 1, 2\]"):
        Recorder(tmp_path).truncate(4)
    assert contents(tmp_path) == before
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text(lines[0] + lines[2])
    with pytest.raises(ValueError, match=r"rounds \[0, 2\]"):
        Recorder(tmp_path).truncate(2)
    with pytest.raises(ValueError, match="none"):
        Recorder(tmp_path / "empty").truncate(0)


def test_no_round_twice_and_none_left_out(tmp_path, make_record):
    recorder = Recorder(tmp_path)
    with pytest.raises(ValueError, match="got round 2, expected round 0 or 1"):
        recorder.append(make_record(2))
    recorder.append(make_record(1))
    with pytest.raises(ValueError, match="got round 1, expected round 2"):
        recorder.append(make_record(1))
    with pytest.raises(ValueError, match="truncate"):
        Recorder(tmp_path).append(make_record(2))
    with pytest.raises(ValueError, match="metrics say round 5"):
        recorder.append(RoundRecord(2, {"round": 5}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {1: 0.5}, {"a": object()}])
@pytest.mark.parametrize("part", ["metrics", "clients", "timing"])
def test_what_is_no_plain_number_is_refused_by_name_and_nothing_is_written(tmp_path, value, part):
    recorder = Recorder(tmp_path / "run")
    bad = {"loss": {"total": value}}
    record = RoundRecord(0, **{"metrics": {}, part: [{"loss": 1.0}, bad] if part == "clients" else bad})
    where = r"clients\[1\]" if part == "clients" else part
    with pytest.raises(ValueError, match=rf"^{where}\.loss\.total"):
        recorder.append(record)
    assert not (tmp_path / "run").exists()


def test_key_order_does_not_change_the_bytes(tmp_path):
    for name, metrics in (("a", {"x": 1, "y": {"p": 1, "q": 2}}), ("b", {"y": {"q": 2, "p": 1}, "x": 1})):
        Recorder(tmp_path / name).append(RoundRecord(0, metrics))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_status(tmp_path):
    recorder = Recorder(tmp_path / "run")
    recorder.status("running")
    recorder.status("failed", reason="ValueError: no")
    status = read_json(tmp_path / "run" / "status.json")
    assert (status["state"], status["reason"]) == ("failed", "ValueError: no")
    assert {"pid", "host", "time"} < status.keys()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["status.json"]
    with pytest.raises(ValueError, match="state is 'done'; choose running"):
        recorder.status("done")


def test_summary_by_hand(tmp_path, make_record):
    recorder = Recorder(tmp_path)
    recorder.append(make_record(0, hits=(10, 90)))
    recorder.append(make_record(1, hits=(10, 0)))
    recorder.append(make_record(2, hits=(0, 45), prototype_hits=(8, 0)))
    recorder.append(make_record(3, hits=(9, 36), prototype_hits=(0, 8)))
    summary = recorder.summarise("abc", "def", {"seed": 0})
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["rounds"], summary["seed"]) == ("finished", 3, 0)
    assert (summary["config_hash"], summary["partition_hash"]) == ("abc", "def")
    # Rounds 2 and 3 both have 45 hits of 100: the earlier one is the best; round 0 came before training.
    assert summary["classifier"] == {
        "last": {"pooled": 0.45, "client_mean": pytest.approx(0.65), "round": 3},
        "best": {"pooled": 0.45, "client_mean": 0.25, "round": 2},
    }
    # 8 hits each: pooled is equal, the client means are 0.4 and 0.04.
    assert summary["nearest_prototype"]["best"] == {"pooled": 0.08, "client_mean": 0.4, "round": 2}
    assert (summary["upload_bytes"], summary["download_bytes"]) == (3 * 320, 3 * 640)
    assert summary["upload_bytes_by_channel"] == {"prototypes": 3 * 320}
    assert summary["seconds"] == {"client": 8.0, "server": 2.0, "evaluation": 1.0, "data": 4.0, "total": 16.0}
    assert (summary["num_failed_clients"], summary["max_device_bytes"]) == (1, 10)


def test_pooled_is_not_the_client_mean(tmp_path, make_record):
    # F11: 10 and 90 test samples, all right and none right.
    recorder = Recorder(tmp_path)
    recorder.append(make_record(1, hits=(10, 0)))
    assert recorder.summarise("c", "p", {})["classifier"]["last"] == {"pooled": 0.1, "client_mean": 0.5, "round": 1}


def test_summary_of_an_untrained_run_and_of_none(tmp_path, make_record):
    recorder = Recorder(tmp_path)
    with pytest.raises(ValueError, match="at least one"):
        recorder.summarise("c", "p", {})
    recorder.append(make_record(0))
    summary = recorder.summarise("c", "p", {})
    assert summary["classifier"]["best"]["round"] == 0
    assert summary["nearest_prototype"] is None
    with pytest.raises(ValueError, match="extra: rounds come from"):
        recorder.summarise("c", "p", {"rounds": 5})
