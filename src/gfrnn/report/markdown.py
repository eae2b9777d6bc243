"""A document as Markdown, for a repository: tables, and pictures beside it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

from gfrnn.report.document import Block, Bullets, Code, Document, Figure, Heading, Paragraph, Sample, Table
from gfrnn.report.tags import find_tags

MARKS = {"closed": "b", "closing": "b", "left open": "del", "stray": "del"}


def markdown(document: Document, beside: Path) -> str:
    """The text of a file in the folder `beside`."""
    parts = [f"# {document.title}", *(written(block, beside) for block in document.blocks)]
    return "\n\n".join(parts) + "\n"


def written(block: Block, beside: Path) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Paragraph):
        return escaped(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {escaped(item)}" for item in block.items)
    if isinstance(block, Code):
        return "\n".join(f"    {line}" for line in block.lines)
    if isinstance(block, Figure):
        return f"![{block.alt}]({block.file.relative_to(beside).as_posix()})\n\n{escaped(block.caption)}"
    if isinstance(block, Sample):
        return sample(block)
    return table(block)


def escaped(text: str) -> str:
    """What Markdown would take for a mark of its own, outside of code: the stars of bold are meant."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<>|_])", r"\\\1", part) for part in parts)


def table(block: Table) -> str:
    right = [":" if kind == "number" else "" for kind in block.kinds]
    titles = " | ".join(escaped(title) for title in block.header)
    lines = [f"| {titles} |", f"|{'|'.join(f'---{end}' for end in right)}|"]
    for row in block.rows:
        shown = [cell_of(cell, kind) for cell, kind in zip(row, block.kinds, strict=True)]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join([escaped(block.caption), "", *lines])


def cell_of(text: str, kind: str) -> str:
    if kind == "code" and text:
        return f"`{text}`"
    if kind == "verdict" and text:
        return f"**{text}**"
    return escaped(text).replace("\n", "<br>")


def sample(block: Sample) -> str:
    """Tags in bold are closed or close; those struck out are left open, or close what was never opened."""
    parts = [f"The prompt:\n\n<pre>{html.escape(block.prompt, quote=False)}</pre>"]
    for who, text in block.texts:
        marked = mark(block.prompt, text, lambda kind, words: f"<{MARKS[kind]}>{words}</{MARKS[kind]}>")
        parts.append(f"{who}:\n\n<pre>{marked}</pre>")
    return "\n\n".join(parts)


def mark(prompt: str, text: str, wrap: Callable[[str, str], str]) -> str:
    """The text after the prompt as HTML, each of its tags wrapped by its kind; the prompt's open tags count."""
    whole, begin = prompt + text, len(prompt)
    parts, at = [], begin
    for tag in find_tags(whole):
        if tag.end <= begin:
            continue
        start = max(tag.start, begin)
        parts.append(html.escape(whole[at:start], quote=False))
        parts.append(wrap(tag.kind, html.escape(whole[start : tag.end], quote=False)))
        at = tag.end
    return "".join([*parts, html.escape(whole[at:], quote=False)])
