"""The W&B mirror, read back from its offline file by wandb's own reader."""

import json
import os
import pickle
import pty
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from fedsaf.tracking.mirror import Tally, Tracker, WandbTracker, run_labels
from fedsaf.tracking.recorder import Recorder
from tests.tracking.conftest import SOURCE, clean_environment

CONF = Path(SOURCE).parent / "conf" / "logger"
CHOICES = {"method": "prototype", "alignment": "rcsa", "partition": "iid"}
METHOD = {"name": "prototype", "reads": ["alignment", "prototype"], "fixes": [], "predictor": "classifier"}
PROGRAM = """
import logging, sys, time
from pathlib import Path
from fedsaf.tracking.mirror import WandbTracker
from fedsaf.core.types import RoundRecord

logging.basicConfig(level=logging.INFO)
folder, mode = Path(sys.argv[1]), sys.argv[2]
tracker = WandbTracker("test", None, mode, init_timeout=2.0, finish_timeout=5.0, client_table_every=0)
start = time.monotonic()
tracker.start(folder, {"seed": 0, "rounds": 1}, {"alignment": "rcsa"}, None)
print("started", time.monotonic() - start)
tracker.log(RoundRecord(1, {"classifier": {"pooled": 0.5}}))
tracker.finish(0)
print("id", tracker.state()["run_id"])
"""


def about(folder, rounds=3, run_id=None):
    config = {"seed": 0, "rounds": rounds, "method": METHOD}
    return folder, config, CHOICES, run_id


def make_tracker(mode="offline", client_table_every=0):
    return WandbTracker("test", None, mode, init_timeout=2.0, finish_timeout=5.0, client_table_every=client_table_every)


def inspect(path, *arguments):
    command = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect", "--json", *arguments, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parts(folder):
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"))


def history(path):
    records = [json.loads(line) for line in inspect(path).splitlines()]
    return [record["history"]["item"] for record in records if record["type"] == "history"]


def run_program(folder, mode, **environment):
    command, clean = [sys.executable, "-c", PROGRAM, str(folder), mode], clean_environment(folder, **environment)
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=clean, timeout=90)


def names(items):
    return {name for item in items for name in item if not name.startswith("_")}


def test_offline_run_holds_every_round_once(tmp_path, make_record):
    tracker = make_tracker()
    tracker.start(*about(tmp_path))
    for round in range(4):
        tracker.log(make_record(round))
    tracker.finish(0)
    (part,) = parts(tmp_path)
    summary = json.loads(inspect(part, "--summary"))
    assert (summary["state"], summary["exit_code"], summary["project"]) == ("finished", 0, "test")
    assert summary["run_id"] == tracker.state()["run_id"]
    group = run_labels(about(tmp_path)[1], CHOICES)["group"]
    assert summary["name"] == f"{group}-seed0"
    assert sorted(summary["tags"]) == ["alignment=rcsa", "method=prototype", "partition=iid"]
    assert summary["summary"]["round"] == 3
    assert summary["summary"]["classifier/pooled"] == 0.5
    assert summary["summary"]["reported/best"] == 0.5
    assert summary["summary"]["reported/sent_mib"] == pytest.approx(3 * 960 / 2**20)
    assert summary["summary"]["loss/total"] == pytest.approx(1.5 / 4)
    assert summary["summary"]["clients"]["nrows"] == 2
    assert [item["round"] for item in history(part)] == [0, 1, 2, 3]
    text = inspect(part)
    assert '"step_metric":"round"' in text
    assert f'group":"{group}"' in text
    assert '"job_type":"prototype"' in text
    staged = [path for path in (tmp_path / "wandb").rglob("*") if path.is_file()]
    assert any("artifacts" in path.parts for path in staged), "files of tables must stay in the run folder"
    assert "WANDB_DATA_DIR" not in os.environ


def test_resume_offline_is_a_second_part_with_the_same_id(tmp_path, make_record):
    first = make_tracker()
    first.start(*about(tmp_path, rounds=6))
    for round in range(1, 4):
        first.log(make_record(round))
    first.finish(1)
    second = make_tracker()
    second.start(*about(tmp_path, rounds=6, run_id=first.state()["run_id"]))
    for round in range(4, 7):
        second.log(make_record(round))
    second.finish(0)
    assert first.state() == second.state()
    before, after = parts(tmp_path)
    summaries = [json.loads(inspect(part, "--summary")) for part in (before, after)]
    assert [summary["run_id"] for summary in summaries] == [first.state()["run_id"]] * 2
    assert [summary["exit_code"] for summary in summaries] == [1, 0]
    for key in ("round", "_step"):  # steps of one part never meet those of another, or joining would lose rows
        assert [[item[key] for item in history(part)] for part in (before, after)] == [[1, 2, 3], [4, 5, 6]]


def test_names_do_not_grow_with_clients_and_tables_come_every_kth_round(tmp_path, make_record):
    found, tables, states = {}, {}, set()
    for num_clients in (2, 200):
        folder = tmp_path / str(num_clients)
        tracker = make_tracker(client_table_every=2)
        tracker.start(*about(folder, rounds=5))
        for round in range(6):
            tracker.log(make_record(round, num_clients=num_clients))
        tracker.finish(0)
        items = history(parts(folder)[0])
        assert len(items) == 6
        found[num_clients] = {name for name in names(items) if not name.startswith("clients")}
        tables[num_clients] = [
            (item["round"], item["clients"]["nrows"]) for item in _nested(items) if "clients" in item
        ]
        states.add(json.loads(inspect(parts(folder)[0], "--summary"))["state"])
    assert states == {"finished"}, "two jobs of one process are two runs, both closed"
    assert found[2] == found[200]
    assert len(found[200]) < 40
    assert tables[200] == [(2, 200), (4, 200), (5, 200)]


def _nested(items):
    """Undo the dots by which the reader names the parts of a table."""
    result = []
    for item in items:
        table = {name.removeprefix("clients."): value for name, value in item.items() if name.startswith("clients.")}
        result.append({**item, "clients": table} if table else item)
    return result


def test_no_key_and_no_terminal_goes_offline_with_one_line(tmp_path):
    result = run_program(tmp_path, "auto")
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert "offline (no W&B key found" in line
    assert f"make sync, or: wandb sync {tmp_path}/wandb/offline-run-*" in line
    assert len(parts(tmp_path)) == 1


def test_no_key_on_a_terminal_does_not_ask(tmp_path):
    ours, theirs = pty.openpty()
    command, streams = (
        [sys.executable, "-c", PROGRAM, str(tmp_path), "online"],
        dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
    )
    process = subprocess.Popen(command, env=clean_environment(tmp_path), **streams)
    os.close(theirs)
    # Nothing is ever typed: a question would let the time run out.
    assert process.wait(timeout=60) == 0
    assert b"no W&B key found" in os.read(ours, 4096)
    os.close(ours)


@pytest.mark.parametrize(
    "kind", ["silent", pytest.param("closed", marks=pytest.mark.slow), pytest.param("refusing", marks=pytest.mark.slow)]
)
def test_an_unreachable_or_refusing_server_means_offline_within_the_limit(tmp_path, kind):
    close, port = _start_server(kind)
    started, key = time.monotonic(), "0123456789" * 4
    try:
        result = run_program(tmp_path, "auto", WANDB_API_KEY=key, WANDB_BASE_URL=f"http://127.0.0.1:{port}")
    finally:
        close()
    assert result.returncode == 0, result.stderr
    assert "W&B is offline (" in result.stderr
    assert key not in result.stderr
    seconds = float(result.stdout.split()[1])
    # Without our limits wandb tries for 90 s; a machine with other work takes several times the 3 s of a free one.
    assert seconds < 40
    assert time.monotonic() - started < 80
    (part,) = parts(tmp_path)
    summary = json.loads(inspect(part, "--summary"))
    assert summary["summary"]["classifier/pooled"] == 0.5
    assert f"id {summary['run_id']}" in result.stdout


def _start_server(kind):
    """Return a server that takes connections and says nothing, one that refuses every key, or one that is gone."""
    if kind == "refusing":
        server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
        Thread(target=server.serve_forever, daemon=True).start()
        return server.shutdown, server.server_port
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = listener.getsockname()[1]
    if kind == "closed":
        listener.close()
    return listener.close, port


class Refuse(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b'{"errors": [{"message": "user is not logged in"}]}'
        self.send_response(401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_malformed_key_goes_offline(tmp_path):
    result = run_program(tmp_path, "auto", WANDB_API_KEY="short")
    assert result.returncode == 0, result.stderr
    assert "W&B is offline (WANDB_API_KEY invalid" in result.stderr
    assert len(parts(tmp_path)) == 1


class FakeRun:
    """Stands for an open run; refuses what it is told to."""

    def __init__(self, refuses):
        self.refuses, self.logged, self.exit_code = refuses, [], None

    def log(self, values):
        if self.refuses(values):
            raise OSError("disk is full")
        self.logged.append(values)

    def finish(self, exit_code):
        self.exit_code = exit_code


def test_a_failing_mirror_warns_once_stops_and_is_still_closed(make_record, caplog):
    tracker = make_tracker()
    tracker._run = run = FakeRun(lambda values: values["round"] in (2, 3))
    for round in range(1, 5):
        tracker.log(make_record(round))
    tracker.finish(1)
    assert [values["round"] for values in run.logged] == [1]
    assert run.exit_code == 1
    assert [record.message for record in caplog.records] == [
        "W&B stops mirroring this run, which goes on: log: OSError: disk is full"
    ]


def test_a_refused_table_does_not_cost_the_numbers_of_its_round(make_record, caplog):
    tracker = make_tracker(client_table_every=1)
    tracker._run = run = FakeRun(lambda values: "clients" in values)
    tracker.log(make_record(1))
    tracker.log(make_record(2))
    assert [(values["round"], values["classifier/pooled"]) for values in run.logged] == [(1, 0.5), (2, 0.5)]
    assert "clients.jsonl holds: disk is full" in caplog.text


def test_a_folder_that_cannot_be_written_does_not_stop_the_run(tmp_path, make_record):
    (tmp_path / "file").write_text("in the way")
    tracker = make_tracker()
    tracker.start(*about(tmp_path / "file"))
    tracker.log(make_record(1))
    tracker.finish(0)
    assert (tmp_path / "file").read_text() == "in the way"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_forked_data_workers_do_not_hang(tmp_path, make_record):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    tracker = make_tracker()
    tracker.start(*about(tmp_path, rounds=20))
    data = TensorDataset(torch.arange(8))
    deadline = time.monotonic() + 60
    for round in range(1, 21):
        loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=20)
        assert sum(len(batch) for (batch,) in loader) == 8
        tracker.log(make_record(round))
    tracker.finish(0)
    assert time.monotonic() < deadline
    assert [item["round"] for item in history(parts(tmp_path)[0])] == list(range(1, 21))


def test_a_disabled_mirror_writes_nothing(tmp_path, make_record):
    tracker = make_tracker("disabled")
    tracker.start(*about(tmp_path))
    tracker.log(make_record(1))
    tracker.finish(0)
    assert list(tmp_path.iterdir()) == []


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="'sometimes'; choose auto, online, offline or disabled"):
        make_tracker("sometimes")
    assert (make_tracker("").mode, make_tracker("dryrun").mode) == ("auto", "offline")
    with pytest.raises(ValueError, match="init_timeout is 0; expected a number > 0"):
        WandbTracker("p", None, "auto", init_timeout=0, finish_timeout=1, client_table_every=0)


def test_labels_put_the_seeds_of_a_cell_into_one_group_and_nothing_else():
    base = {"seed": 0, "method": METHOD, "scale": "small", "stand_in_for": "cifar10", "partition": {"alpha": 0.1}}
    choices = {**CHOICES, "experiment": "table_3", "paper": "fedsaf", "logger": "wandb"}
    zero, one = run_labels(base, choices), run_labels({**base, "seed": 1}, {**choices, "experiment": "figure_6"})
    assert zero["group"] == one["group"], "the experiment that started a run does not tell cells apart"
    assert zero["group"].startswith("prototype-rcsa-iid-small-cifar10-")
    assert (zero["name"], one["name"]) == (f"{zero['group']}-seed0", f"{zero['group']}-seed1")
    assert {"scale=small", "stand_in_for=cifar10", "experiment=table_3", "paper=fedsaf"} <= set(zero["tags"])
    assert not any(tag.startswith(("logger", "scale_")) for tag in zero["tags"])
    other = run_labels({**base, "partition": {"alpha": 0.5}}, choices)
    assert other["group"] != zero["group"], "a swept value is another cell, also if no choice says so"


def test_labels_say_what_the_method_is_and_reads():
    lexical = {"name": "fedtsp_lexical", "reads": [], "fixes": ["prototype"]}
    labels = run_labels(
        {"seed": 0, "method": lexical}, {"method": "fedtsp", "alignment": "rcsa", "prototype": "text_prior"}
    )
    assert labels["job_type"] == "fedtsp_lexical"
    assert labels["tags"] == ["method=fedtsp_lexical", "prototype=text_prior"]
    assert labels["group"].startswith("fedtsp_lexical-")


def test_long_labels_keep_what_tells_runs_apart():
    labels = [run_labels({"seed": seed, "rounds": a}, {"dataset": "x" * 300}) for seed, a in ((12345, 0), (12345, 1))]
    assert all(len(label["name"]) <= 128 and label["name"].endswith("-seed12345") for label in labels)
    assert all(len(label["group"]) <= 128 and len(label["tags"][0]) <= 64 for label in labels)
    assert len({label["group"] for label in labels}) == len({label["name"] for label in labels}) == 2


def test_running_totals_of_a_resumed_run_go_on(tmp_path, make_record):
    straight, recorder = Tally("classifier", []), Recorder(tmp_path)
    records = [make_record(round, hits=(hits, 0)) for round, hits in enumerate((1, 9, 2, 3))]
    values = [straight.after(record) for record in records]
    assert [value["reported/best"] for value in values] == [0.01, 0.09, 0.09, 0.09]
    assert [value["reported/pooled"] for value in values] == [0.01, 0.09, 0.02, 0.03]
    for record in records[:2]:
        recorder.append(record)
    resumed = Tally("classifier", recorder.rows())
    assert [resumed.after(record) for record in records[2:]] == values[2:]
    assert "reported/best" not in Tally(None, []).after(records[0])


def test_configurations_build_their_tracker(monkeypatch):
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    assert type(instantiate(OmegaConf.load(CONF / "none.yaml"))) is Tracker
    tracker = instantiate(OmegaConf.load(CONF / "wandb.yaml"))
    assert (tracker.mode, tracker.entity, tracker.project) == ("auto", None, "fedsaf")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert instantiate(OmegaConf.load(CONF / "wandb.yaml")).mode == "offline"
    assert pickle.loads(pickle.dumps(tracker)).project == "fedsaf", "spawned ranks get a copy"


def test_no_tracker_imports_no_wandb():
    code = (
        "import sys\n"
        "from hydra.utils import instantiate\n"
        "tracker = instantiate({'_target_': 'fedsaf.tracking.mirror.Tracker'})\n"
        "tracker.start(None, {}, {}, None); tracker.log(None); tracker.finish(0)\n"
        "assert tracker.state() == {'run_id': None}\n"
        "print('wandb' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "False"
