"""What the package says it needs is what it imports, and what `make test` runs on is the least it says it needs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gfrnn.training.trackers import TRACKERS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
IMPORTED_AS = {"pyyaml": "yaml"}
# What others import for us.
NOT_IMPORTED = {"onnxscript": "torch.onnx.export", "accelerate": "the Trainer of transformers"}
NOT_IMPORTED |= dict.fromkeys(TRACKERS, "by name, or by torch.utils.tensorboard")


def names(requirements: list[str]) -> set[str]:
    return {Requirement(requirement).name for requirement in requirements}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pinned}


def oldest_python() -> str:
    return str(PROJECT["project"]["requires-python"]).removeprefix(">=")


def imported() -> set[str]:
    """The top-level names of everything that the package imports and that neither it nor Python is."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module).split(".")[0])
    return found - set(sys.stdlib_module_names) - {"gfrnn"}


def test_every_dependency_is_imported_and_every_import_is_a_dependency() -> None:
    extras = [requirement for extra in EXTRAS if extra != "dev" for requirement in EXTRAS[extra]]
    declared = names([*PROJECT["project"]["dependencies"], *extras])
    assert imported() == {IMPORTED_AS.get(name, name) for name in declared - set(NOT_IMPORTED)}


def test_every_dependency_is_pinned_and_nothing_else_is() -> None:
    installed = re.findall(r"-e '\.\[(.*)\]'", (ROOT / "Makefile").read_text(encoding="utf-8"))
    extras = [requirement for extra in installed[0].split(",") for requirement in EXTRAS[extra]]
    assert set(pins()) == names([*PROJECT["project"]["dependencies"], *extras])


@pytest.mark.parametrize("file", ["Makefile", "README.md"])
def test_the_torch_that_is_installed_is_the_pinned_one(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert set(re.findall(r"torch==([\d.]+\d)", text)) == {pins()["torch"]}


@pytest.mark.parametrize("name", pins())
def test_what_is_pinned_runs_on_the_oldest_python(name: str) -> None:
    assert oldest_python() in SpecifierSet(metadata(name)["Requires-Python"] or "")


def test_one_oldest_python_is_told_everywhere() -> None:
    oldest = oldest_python()
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert f"Programming Language :: Python :: {oldest}" in PROJECT["project"]["classifiers"]
    for file in ("README.md", "constraints.txt"):
        assert re.findall(r"Python (3\.\d+)", (ROOT / file).read_text(encoding="utf-8")) == [oldest], file
