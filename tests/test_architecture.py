"""What docs/architecture.md says of the house: its floors, and that a fact is in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import ROOT
from test_floors import FILES, FLOORS, HOUSE

from gfrnn.bench.plan import VOCABULARY
from gfrnn.models.vocabulary import ENWIK8

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
# What would be written if the fact were decided a second time -> the one place where it may stand.
ONE_PLACE = {
    r'"i", "f", ': "equations.py",
    r'\bWiring\("': "equations.py",
    r'"(env\.json|metrics\.jsonl|config\.yaml|LATEST|grid\.json|(model|train)\.safetensors|train\.json)"': (
        "storage/run_folder.py"
    ),
    r"exit_code = \d|return (0 if \w+ else )?(2|3|4|75|130)$|sys\.exit\(\d": "errors.py",
    r"\bAUTO = |next\(name for name in AUTO": "ops/__init__.py",
    r"float32: 1e-|\bSHORT = ": "bench/tolerance.py",
    r"\(9, 10\), \(32, 126\)": "models/vocabulary.py",
    r"^LEARNING_RATE = \{": "recipes/hutter.py",
    r"replace_file\(.*LATEST": "training/checkpoint.py",
    r"turn\(seed, size\)": "tasks/text/task.py",
}


def code(path: Path) -> str:
    """Without the examples in docstrings."""
    return "\n".join(
        line for line in path.read_text(encoding="utf-8").splitlines() if not line.strip().startswith(">>>")
    )


@pytest.mark.parametrize("pattern", ONE_PLACE)
def test_a_fact_is_in_one_place(pattern: str) -> None:
    found = {str(path.relative_to(HOUSE)) for path in FILES if re.search(pattern, code(path), flags=re.MULTILINE)}
    assert found == {ONE_PLACE[pattern]}
    assert f"`{ONE_PLACE[pattern]}" in PAGE


def test_twelve_facts_have_one_place_each() -> None:
    table = PAGE.partition("## Where is it decided?")[2].partition("\n\nWho asks")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 12
    for row in rows:
        where = row.split("|")[2]
        assert len(re.findall(r"`[\w./]+\.py", where)) == 1, row


def test_the_floors_are_those_of_the_plan() -> None:
    """From the top down; what shares a floor with others stands for them."""
    block = PAGE.partition("never from above")[2].partition("`equations.py` imports nothing")[0]
    drawn = re.findall(r"^    (\w+)(?:/|\.py) ", block, flags=re.MULTILINE)
    assert len(drawn) == len(FLOORS)
    for room, floor in zip(drawn, reversed(FLOORS), strict=True):
        assert room in floor


def test_the_bench_has_as_many_symbols_as_the_models() -> None:
    assert len(ENWIK8) == VOCABULARY
