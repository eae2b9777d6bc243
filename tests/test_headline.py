"""The README's Table 2 is the report's: the same rows, the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gfrnn.campaign.plan import ROWS

ROOT = Path(__file__).parent.parent
BUDGET = "Table 2, ours with modern settings, a learning rate for each row, 3 M characters."


def cells(line: str) -> list[str]:
    return [cell.strip().replace("*", "") for cell in line.strip().strip("|").split("|")]


def table_after(file: str, words: str) -> list[list[str]]:
    """The rows of the first table below these words, without its header."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert text.count(words) == 1
    lines = text.partition(words)[2].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return rows


def headline() -> list[list[str]]:
    return table_after("README.md", "**The paper's Table 2**")


def test_every_row_of_the_papers_table_is_there() -> None:
    assert len(headline()) == len(ROWS["table2"])


@pytest.mark.parametrize("number", range(len(ROWS["table2"])))
def test_a_row_says_what_the_report_says(number: int) -> None:
    row = headline()[number]
    model, units, paper, test, _, behind, seeds, *_ = table_after("results/REPORT.md", BUDGET)[number]
    assert row == [f"{model}, {units.replace(' ', '')}", paper, test, behind, seeds if test else ""]
