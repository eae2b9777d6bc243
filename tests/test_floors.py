"""The house has floors: nothing imports upwards, and only the top floor knows argparse and standard output."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gfrnn

HOUSE = Path(gfrnn.__file__).parent
# From the ground up; names on one line are one floor, whose rooms may be entered from each other.
FLOORS = (
    {"errors", "sections", "progress", "names", "this_python"},
    {"storage"},
    {"equations", "products"},
    {"ops"},
    {"layers", "parameters", "packed", "foreign", "checks", "convert", "signatures", "torch_names"},
    {"models"},
    {"tasks"},
    {"training"},
    {"recipes"},
    {"campaign"},
    {"report"},
    {"explore"},
    {"export", "hf"},
    {"bench"},
    {"cli", "__main__"},
)
LEVEL = {room: level for level, floor in enumerate(FLOORS) for room in floor}
FILES = sorted(path for path in HOUSE.rglob("*.py") if path != HOUSE / "__init__.py")
names = [str(path.relative_to(HOUSE)) for path in FILES]
every_file = pytest.mark.parametrize("path", FILES, ids=names)


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    """Every module that is imported anywhere in the file, also late and for types only."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def upwards(path: Path) -> list[str]:
    names = [name.split(".")[1] for name in imports(path) if name.startswith("gfrnn.")]
    rooms = ["layers" if name in gfrnn.__all__ else name for name in names]  # the package itself hands out the layers
    return [room for room in rooms if room in LEVEL and LEVEL[room] > LEVEL[room_of(path)]]


@every_file
def test_every_room_is_on_a_floor_and_imports_only_from_its_own_and_those_below(path: Path) -> None:
    assert room_of(path) in LEVEL
    assert upwards(path) == []


def test_an_import_upwards_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HOUSE", tmp_path)
    (tmp_path / "ops.py").write_text("def late():\n    from gfrnn.models.char_lm import CharLM\n    return CharLM\n")
    assert upwards(tmp_path / "ops.py") == ["models"]
    (tmp_path / "layers.py").write_text("from gfrnn import checks, cli, ops\nimport gfrnn.equations\n")
    assert upwards(tmp_path / "layers.py") == ["cli"]
    (tmp_path / "ops.py").write_text("from gfrnn import GFLSTM\n")
    assert upwards(tmp_path / "ops.py") == ["layers"]


@every_file
def test_only_the_command_line_knows_argparse_and_standard_output(path: Path) -> None:
    if room_of(path) in ("cli", "__main__"):
        return
    assert "argparse" not in imports(path)
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    prints = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    under_main = "__main__" in path.read_text()  # a file that is also a program, started by another of ours
    assert not prints or under_main, f"{path} prints in line {prints}"


@pytest.mark.parametrize("suffix", [".py", ".cpp", ".h"])
def test_files_are_short_enough_to_read(suffix: str) -> None:
    lines = {path.name: path.read_text().count("\n") for path in HOUSE.rglob(f"*{suffix}")}
    assert lines
    assert {name: count for name, count in lines.items() if count >= 300} == {}


def test_the_models_do_not_load_the_command_line() -> None:
    code = (
        "import sys; from gfrnn.models import CharLM; CharLM; print([m for m in sys.modules if m.startswith('gfrnn')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in ast.literal_eval(done.stdout) if "." in name}
    assert "models" in loaded
    assert {room for room in loaded if room in LEVEL and LEVEL[room] > LEVEL["models"]} == set()
