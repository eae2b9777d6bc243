"""The shop window: every python example of the README and of every docstring runs as printed."""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

import gfrnn

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"])


def python_blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_document_examples_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one document run in order, in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": document.stem}
    for number, block in enumerate(python_blocks(document), start=1):
        exec(compile(block, f"{document.name}, python block {number}", "exec"), namespace)


def test_the_readme_shows_how_to_use_a_layer() -> None:
    assert any("GFLSTM(" in block for block in python_blocks(ROOT / "README.md"))


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
            if "://" not in target and not target.startswith("mailto:"):
                assert (document.parent / target).exists(), f"{document.name} links to {target}, which is not there"


def modules() -> list[str]:
    """Every module of the package that is written in Python."""
    found = pkgutil.walk_packages(gfrnn.__path__, "gfrnn.")
    compiled = tuple(EXTENSION_SUFFIXES)
    return ["gfrnn", *(one.name for one in found if not origin(one.name).endswith(compiled))]


def origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None, f"{name} has no __init__.py"
    return spec.origin


@pytest.mark.parametrize("name", [name for name in modules() if not name.endswith("__main__")])
def test_docstring_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_the_layers_show_their_use() -> None:
    finder = doctest.DocTestFinder()
    for kind in (gfrnn.GFRNN, gfrnn.GFGRU, gfrnn.GFLSTM):
        assert any(test.examples for test in finder.find(kind)), kind.__name__
