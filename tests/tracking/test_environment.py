import json
import os
import subprocess
import sys
from pathlib import Path

import fedsaf
from fedsaf.tracking.environment import environment


def test_is_plain_and_names_no_path():
    found = environment(threads=3)
    text = json.dumps(found)
    assert found["threads"] == 3
    assert found["packages"]["hydra-core"]
    assert found["cpu"]["cores"] >= found["cpu"]["available"] >= 1
    assert str(Path(fedsaf.__file__).parent) not in text
    assert str(Path.home()) not in text


def test_commit_of_a_repository_and_none_without_git(tmp_path, monkeypatch):
    package = tmp_path / "fedsaf" / "tracking"
    package.mkdir(parents=True)
    monkeypatch.setattr("fedsaf.tracking.environment.__file__", str(package / "environment.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment(threads=1)["git"] is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    clean = environment(threads=1)["git"]
    assert len(clean["commit"]) == 40
    assert not clean["dirty"]
    (tmp_path / "file").write_text("2")
    assert environment(threads=1)["git"] == {**clean, "dirty": True}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment(threads=1)["git"] is None


def test_importing_results_brings_neither_torch_nor_wandb_nor_matplotlib():
    modules = ("recorder", "summary", "closing", "environment", "mirror", "progress", "callbacks")
    code = "".join(f"import fedsaf.tracking.{name}\n" for name in modules)
    code += "from fedsaf.tracking.environment import environment\nenvironment(1)\nimport sys\n"
    code += "print([name for name in ('torch', 'wandb', 'matplotlib') if name in sys.modules])"
    path = str(Path(fedsaf.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert result.stdout.strip() == "[]"
