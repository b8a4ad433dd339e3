"""The entry that makes tables of run folders."""

import pytest

from report import main
from tests.results.recorded import record_run


def test_every_table_in_three_forms(tmp_path, capsys):
    record_run(tmp_path / "runs" / "run", 70)
    assert main([str(tmp_path / "runs"), "--tier", "full", "--output", str(tmp_path / "out")]) == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(files) == 3 * 20
    assert {"saf-t1_full.md", "tgp-k10_full.csv", "proc-t6_full.tex"} <= set(files)
    printed = capsys.readouterr().out
    assert "saf-t1: 1 of 108 cells" in printed
    assert "1 finished runs in" in printed
    assert "70.00 ± 0.00" in (tmp_path / "out" / "saf-t3_full.md").read_text()


def test_a_table_that_was_asked_for_and_has_no_run(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    arguments = [str(tmp_path / "runs"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert main([*arguments, "--table", "saf-t3"]) == 1
    assert "saf-t3: no finished run of tier small; its runs: table-3" in capsys.readouterr().out


def test_a_fault_is_printed_with_its_folder_and_ends_in_an_error(tmp_path, capsys):
    (record_run(tmp_path / "runs" / "run") / "summary.json").unlink()
    assert main([str(tmp_path / "runs"), "--tier", "full", "--output", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().out
    assert f"does not count: {tmp_path / 'runs' / 'run'}: summary.json is missing" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tier", "medium"], "invalid choice: 'medium'"),
        (["--table", "saf-t99"], "invalid choice: 'saf-t99'"),
        (["nowhere"], "no such folder: nowhere"),
    ],
)
def test_words_that_cannot_be_meant(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in capsys.readouterr().err
