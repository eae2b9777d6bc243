"""The shop window: examples run as printed, links lead somewhere, and what is named is there."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import pkgutil
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import documents
import pytest
import torch
from documents import DOCUMENTS, NAMES, ROOT

import gfrnn

HOUSE = ROOT / "src" / "gfrnn"
FILE = re.compile(r"(?P<file>[\w./*-]+(?:\.(?:py|h|cpp|md|csv|yaml)|/))(?:::(?P<name>[\w.]+))?")
MADE_BY_A_RUN = {"config.yaml", "best/", "checkpoints/step-N/"}
every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)


@every_document
def test_document_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one document run in order, in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": path.stem}
    for number, block in enumerate(documents.read(path).python, start=1):
        exec(compile(block, f"{path.name}, python block {number}", "exec"), namespace)


def test_the_readme_shows_how_to_use_a_layer() -> None:
    assert any("GFLSTM(" in block for block in documents.read(ROOT / "README.md").python)


@every_document
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", path.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        there = path.parent / target if target else path
        assert there.exists(), f"{path.name} links to {target}, which is not there"
        if anchor:
            assert anchor[1:] in anchors(there), f"{path.name} links to {target}{anchor}: no such heading"


def anchors(path: Path) -> list[str]:
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]


def named(path: Path) -> list[tuple[str, str | None]]:
    """The files of ours that a document names in code, with the names inside them (`file::name`) if it does."""
    matches = [FILE.fullmatch(span) for span in documents.read(path).spans]
    return [(found["file"], found["name"]) for found in matches if found and found["file"] not in MADE_BY_A_RUN]


def places(file: str, path: Path) -> list[Path]:
    """What a document may mean by a file: beside it, in the repository, the package, the tests, the op, or a folder of
    the repository that it names."""
    folders = [ROOT / span for span in documents.read(path).spans if span.endswith("/") and (ROOT / span).is_dir()]
    around = (path.parent, ROOT, HOUSE, ROOT / "tests", HOUSE / "ops" / "cpu", *folders)
    return [found for folder in around for found in folder.glob(file.rstrip("/"))]


def defines(file: Path, name: str) -> bool:
    """Whether a file has a function, class or constant of that name; `Class.method` is looked for in the class."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        return re.search(rf"\b{name}\b", text) is not None
    body = ast.parse(text).body
    for part in name.split("."):
        found = [node for node in body if part in names_of(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]


@every_document
def test_what_is_named_is_there(path: Path) -> None:
    for file, name in named(path):
        found = places(file, path)
        assert found, f"{path.name} names {file}, which is not there"
        assert name is None or any(defines(one, name) for one in found), f"{file} has no {name}"


@every_document
def test_what_is_named_with_its_module_is_there(path: Path) -> None:
    """`equations.step`, `models.CharLM`: a room of the house and what is in it."""
    rooms = {room.stem for room in HOUSE.iterdir()}
    for span in documents.read(path).spans:
        room, _, name = span.partition(".")
        if room in rooms and name.isidentifier() and not FILE.fullmatch(span):
            assert hasattr(importlib.import_module(f"gfrnn.{room}"), name), f"{path.name} names {span}"


def test_what_is_not_there_is_seen() -> None:
    here = ROOT / "docs" / "architecture.md"
    assert not places("tasks/hutter.py", here)
    assert defines(HOUSE / "training/checkpoint.py", "Checkpoints.save")
    assert not defines(HOUSE / "training/checkpoint.py", "save")
    assert not defines(HOUSE / "training/checkpoint.py", "Checkpoints.safe")


def test_the_changelog_says_where_modules_went() -> None:
    """What moved is gone from where it was and there where it is; a name in brackets is in the module before it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for before, since in re.findall(r"^\| (`gfrnn\..*?) \| (.*?) \|$", text, flags=re.MULTILINE):
        for name in re.findall(r"`(gfrnn[\w.]*)`", before):
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)
        inside = re.findall(r"`(\w+)`", since.partition("(")[2]) or re.findall(r"`(\w+)`", before.partition("(")[2])
        moved = [importlib.import_module(name) for name in re.findall(r"`(gfrnn[\w.]*)`", since)]
        assert moved and all(hasattr(moved[0], name) for name in inside), since


@every_document
def test_make_knows_its_targets(path: Path) -> None:
    known = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert documents.targets(documents.read(path)) <= set(known)


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
