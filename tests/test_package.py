"""What somebody sees who types `import gfrnn` and looks around."""

from __future__ import annotations

import pydoc
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml

import gfrnn
from gfrnn.cli import main

ROOT = Path(__file__).parents[1]
LAYERS = {"GFBoundedLSTM", "GFGRU", "GFLSTM", "GFRNN"}


def test_dir_shows_the_layers_without_importing_torch() -> None:
    code = f"import sys, gfrnn; assert {LAYERS} <= set(dir(gfrnn)), dir(gfrnn); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(hasattr(gfrnn, name) for name in dir(gfrnn))


def test_help_shows_the_layers_and_teaches() -> None:
    shown = pydoc.plain(pydoc.render_doc(gfrnn))
    for name in LAYERS:
        assert f"class {name}(" in shown
    assert "Called like torch.nn.GRU" in shown


def test_the_lesson_in_the_help_runs() -> None:
    lines = [line for line in (gfrnn.__doc__ or "").splitlines() if line.startswith("    ")]
    lesson: dict[str, object] = {}
    exec(textwrap.dedent("\n".join(lines)), lesson)
    assert type(lesson["stack"]).__name__ == "GFLSTM"
    assert len(lesson["model"].generate("The ", 5)) == 5  # type: ignore[attr-defined]


def test_the_version_is_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "gfrnn.__version__"}
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{gfrnn.__version__}\n"


def test_what_to_cite() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Chung", "Gulcehre", "Cho", "Bengio"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert paper["url"] == project["urls"]["Paper"] and paper["url"] in (ROOT / "README.md").read_text(encoding="utf-8")
    assert citation["license"] == project["license"] and "version" not in citation
