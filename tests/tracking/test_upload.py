"""Offline runs on their way to the service: the real `wandb sync` against one of our own."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from fedsaf.core.identity import lock_path
from fedsaf.tracking.mirror import WandbTracker
from fedsaf.tracking.recorder import Recorder
from fedsaf.tracking.upload import has_arrived, pending, send
from tests.tracking.conftest import clean_environment
from tests.tracking.wandb_service import KEY, Service, serving

SYNC = Path(__file__).resolve().parents[2] / "src" / "sync.py"
METHOD = {"name": "prototype", "reads": ["alignment", "prototype"], "predictor": "classifier"}
CONFIG = {"seed": 0, "rounds": 6, "method": METHOD}


def mirror(folder, records, run_id=None):
    """Mirror rounds offline as a run does, or as its resume does, and return the id."""
    recorder, before = Recorder(folder), records[0].round - 1
    if before >= 0:
        recorder.truncate(before)
    tracker = WandbTracker("test", None, "offline", init_timeout=2.0, finish_timeout=5.0, client_table_every=0)
    tracker.start(folder, CONFIG, {"method": "prototype", "alignment": "rcsa"}, run_id)
    for record in records:
        recorder.append(record)
        tracker.log(record)
    tracker.finish(0)
    return tracker.state()["run_id"]


def sync(root, *words, url="http://127.0.0.1:9", key=KEY, mode="offline"):
    """Start the entry; WANDB_MODE is what a machine has that mirrors offline."""
    environment = clean_environment(root, WANDB_BASE_URL=url, WANDB_MODE=mode) | ({"WANDB_API_KEY": key} if key else {})
    command = [sys.executable, str(SYNC), str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def part(folder, name, arrived=False):
    place = folder / "wandb" / name
    place.mkdir(parents=True)
    (place / "run-a.wandb").write_text("")
    if arrived:
        (place / "run-a.wandb.synced").write_text("")
    return place


def test_parts_of_a_resumed_run_arrive_as_one_and_once_in_order_of_rounds(tmp_path, make_record, monkeypatch):
    zones = {}
    for zone, rounds in (("Asia/Tokyo", range(3)), ("UTC", range(3, 6))):  # by their names the second part came first
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        zones[zone] = mirror(tmp_path / "run", [make_record(round) for round in rounds], zones.get("Asia/Tokyo"))
    monkeypatch.undo()
    time.tzset()
    names = [place.name for place in pending([tmp_path])[0][tmp_path / "run"]]
    assert names == sorted(names, reverse=True)
    run = zones["UTC"]
    with serving(Service()) as service:
        first, second = sync(tmp_path, url=service.url), sync(tmp_path, url=service.url)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "2 parts of 1 runs to send" in first.stdout
    assert list(service.rows) == [run]
    assert [row["round"] for row in service.rows[run]] == list(range(6))
    assert [row["_step"] for row in service.rows[run]] == list(range(6))
    assert service.rows[run][-1]["reported/sent_mib"] == pytest.approx(5 * 960 / 2**20)
    assert service.groups[run].startswith("prototype-rcsa-")
    assert second.returncode == 0
    assert "0 parts of 0 runs to send, 2 parts sent earlier" in second.stdout


def test_a_refusal_is_said_and_what_was_refused_waits(tmp_path, make_record):
    mirror(tmp_path / "run", [make_record(0)])
    with serving(Service(refuses=True)) as service:
        result = sync(tmp_path, url=service.url)
    assert result.returncode == 1
    assert "1/1 failed" in result.stdout
    assert "permission denied" in result.stdout
    assert len(pending([tmp_path])[0]) == 1


@pytest.mark.parametrize(
    ("words", "expected"), [({"key": None}, "no W&B key found"), ({}, "W&B does not answer at http://127.0.0.1:9")]
)
def test_without_key_or_answer_one_line_says_so(tmp_path, words, expected):
    part(tmp_path / "run", "offline-run-1-a")
    result = sync(tmp_path, **words)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {expected}")
    assert line.endswith("Nothing was sent")
    assert KEY not in result.stderr


def test_a_dry_run_lists_and_asks_nobody(tmp_path):
    part(tmp_path / "run", "offline-run-1-a", arrived=True)
    part(tmp_path / "run", "offline-run-2-a")
    result = sync(tmp_path, "--dry-run", key=None)
    assert result.returncode == 0
    assert "1 parts of 1 runs to send, 1 parts sent earlier" in result.stdout
    assert f"{tmp_path / 'run'}: offline-run-2-a" in result.stdout


def test_what_is_being_written_waits_and_online_runs_are_no_matter(tmp_path):
    for name in ("busy", "free"):
        part(tmp_path / name, "offline-run-1-a")
    part(tmp_path / "free", "run-2-a")
    (tmp_path / "free" / "wandb" / "offline-run-0-empty").mkdir()
    with FileLock(lock_path(tmp_path / "busy")):
        waiting, arrived = pending([tmp_path])
    assert (waiting, arrived) == ({tmp_path / "free": [tmp_path / "free" / "wandb" / "offline-run-1-a"]}, 0)
    assert len(pending([tmp_path])[0]) == 2


def test_parts_go_in_order_of_start_and_none_overtakes(tmp_path):
    parts = [part(tmp_path, f"offline-run-{number}-a") for number in (1, 2, 3)]
    program = tmp_path / "wandb.py"
    program.write_text(
        "import sys, pathlib\n"
        "place = pathlib.Path(sys.argv[-1])\n"
        "open(sys.argv[0] + '.log', 'a').write(' '.join(sys.argv[1:-1] + [place.name]) + '\\n')\n"
        "if '-2-' in place.name: sys.exit('disk is full')\n"
        "(place / 'run-a.wandb.synced').write_text('')\n"
    )
    reason = send(parts, "us", None, [sys.executable, str(program)])
    assert reason == "offline-run-2-a: disk is full"
    calls = (tmp_path / "wandb.py.log").read_text().splitlines()
    assert calls == [f"sync --yes --entity=us offline-run-{number}-a" for number in (1, 2)]
    assert [has_arrived(place) for place in parts] == [True, False, False]
