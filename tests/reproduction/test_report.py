"""The entry that makes tables of run folders."""

import pytest

from report import main
from tests.reproduction.recorded import record_place, record_run


def test_every_table_in_three_forms(tmp_path, capsys):
    record_run(tmp_path / "runs" / "run", 70)
    assert main([str(tmp_path / "runs"), "--scale", "full", "--output", str(tmp_path / "out")]) == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_file())
    assert len(files) == 3 * 21
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
    assert "saf-t3: no finished run of scale small; its runs: table-3" in capsys.readouterr().out


def test_figures_by_name_or_target_and_no_table(tmp_path, capsys):
    record_place(tmp_path / "runs" / "run", "saf-f9", "CIFAR-10, FedSAF-GCSA", 70)
    arguments = [str(tmp_path / "runs"), "--scale", "smoke", "--output", str(tmp_path / "out"), "--figure"]
    assert main([*arguments, "saf-f9", "figure-7"]) == 0
    assert "saf-f9: drawn, 27 places left out" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["figures"]
    endings = (".csv", ".md", ".pdf", ".png")
    expected = {f"saf-f{number}_smoke{ending}" for number in (7, 9) for ending in endings}
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert names == expected | {"saf-f7_smoke_silhouettes.csv"}
    assert main([*arguments, "figure-10", "figure-3"]) == 1
    printed = capsys.readouterr().out
    assert "saf-f10: no finished run of scale smoke; its runs: figure-10" in printed
    assert "saf-f3: no finished run of scale smoke; its runs: table-1, table-2, table-3, table-4" in printed


def test_without_a_choice_figures_are_made_too(tmp_path):
    record_place(tmp_path / "runs" / "run", "saf-f9", "CIFAR-10, FedSAF-GCSA", 70)
    assert main([str(tmp_path / "runs"), "--scale", "smoke", "--output", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out" / "figures").glob("*.png")}
    assert names == {"saf-f6_smoke.png", "saf-f7_smoke.png", "saf-f9_smoke.png"}


def test_a_fault_is_printed_with_its_folder_and_ends_in_an_error(tmp_path, capsys):
    (record_run(tmp_path / "runs" / "run") / "summary.json").unlink()
    assert main([str(tmp_path / "runs"), "--scale", "full", "--output", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().out
    assert f"does not count: {tmp_path / 'runs' / 'run'}: summary.json is missing" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scale", "medium"], "invalid choice: 'medium'"),
        (["--table", "saf-t99"], "no table is called 'saf-t99'; did you mean saf-t9"),
        (["--figure", "figure-2"], "no figure is called 'figure-2'; did you mean figure-"),
        (["nowhere"], "no such folder: nowhere"),
    ],
)
def test_words_that_cannot_be_meant(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in capsys.readouterr().err
