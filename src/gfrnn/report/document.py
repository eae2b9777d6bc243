"""A report as a list of blocks, which is written as Markdown (markdown.py) and as one HTML page (page.py).

Text inside blocks has two marks, as in Markdown: `code` and **bold**.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["text", "number", "verdict", "code", "narrow"]


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str
    note: bool = False  # set smaller: what a caption or a footnote says


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Code:
    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of cells, with what kind of thing is in each column."""

    caption: str
    header: Sequence[str]
    kinds: Sequence[Kind]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """`file` is an SVG that was drawn; beside it is a PNG of the same name."""

    file: Path
    caption: str
    alt: str


@dataclass(frozen=True)
class Sample:
    """A prompt and what models wrote after it, the tags marked."""

    prompt: str
    texts: Sequence[tuple[str, str]]  # (who, what)


Block = Heading | Paragraph | Bullets | Code | Table | Figure | Sample


@dataclass
class Document:
    """What a report says, in order."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        self.blocks += blocks
