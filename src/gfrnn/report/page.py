"""A document as one HTML page: nothing is fetched, no script is needed, light or dark as the reader prefers, A4."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from importlib import resources
from itertools import count
from pathlib import Path

from gfrnn.report.document import Block, Bullets, Code, Document, Figure, Heading, Paragraph, Sample, Table
from gfrnn.report.markdown import mark

# Colours that figures are drawn with where the page's own are meant, see figures.py.
INK, PAPER = "#1b1d21", "#fefefe"
KINDS = {"closed": "closed", "closing": "closed", "left open": "open", "stray": "open"}
# Nothing comes from outside. What matplotlib draws has a style in every element.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(document: Document) -> str:
    style = resources.files("gfrnn").joinpath("report/style.css").read_text(encoding="utf-8")
    figures = count(1)
    body = "\n".join(written(block, figures) for block in document.blocks)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(document.title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{inline(document.title)}</h1>
{contents(document)}
{body}
</main>
</body>
</html>
"""


def contents(document: Document) -> str:
    headings = [block for block in document.blocks if isinstance(block, Heading) and block.level == 2]
    links = "".join(f'<li><a href="#{anchor(heading)}">{inline(heading.text)}</a></li>' for heading in headings)
    return f'<nav aria-label="contents"><ol>{links}</ol></nav>'


def anchor(heading: Heading) -> str:
    return re.sub(r"\W+", "-", heading.text.lower()).strip("-")


def inline(text: str) -> str:
    """`code` and **bold**; everything else as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(f"<code>{html.escape(p[1:-1])}</code>" if p.startswith("`") else words(p) for p in parts)


def words(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text, quote=False)).replace("\n", "<br>")


def written(block: Block, figures: Iterator[int]) -> str:
    if isinstance(block, Heading):
        name = f' id="{anchor(block)}"' if block.level == 2 else ""
        return f"<h{block.level}{name}>{inline(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f'<p class="note">{inline(block.text)}</p>' if block.note else f"<p>{inline(block.text)}</p>"
    if isinstance(block, Bullets):
        return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in block.items)}</ul>"
    if isinstance(block, Code):
        return f"<pre>{html.escape(chr(10).join(block.lines), quote=False)}</pre>"
    if isinstance(block, Figure):
        picture = drawing(block.file, f"f{next(figures)}", block.alt)
        return f"<figure>{picture}<figcaption>{inline(block.caption)}</figcaption></figure>"
    if isinstance(block, Sample):
        return sample(block)
    return table(block)


def table(block: Table) -> str:
    titles = zip(block.header, block.kinds, strict=True)
    head = "".join(f'<th scope="col" class="{kind}">{inline(title)}</th>' for title, kind in titles)
    rows = []
    for row in block.rows:
        cells = [cell_of(cell, kind, place) for place, (cell, kind) in enumerate(zip(row, block.kinds, strict=True))]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    parts = f"<caption>{inline(block.caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide"><table>{parts}</table></div>'


def cell_of(text: str, kind: str, place: int) -> str:
    shown = inline(text)
    if kind == "code" and text:
        shown = f"<code>{' '.join(f'<span>{html.escape(word)}</span>' for word in text.split())}</code>"
    elif kind == "verdict" and text:
        shown = f'<span class="badge {text.replace(" ", "-")}">{html.escape(text)}</span>'
    return f'<th scope="row" class="{kind}">{shown}</th>' if place == 0 else f'<td class="{kind}">{shown}</td>'


def sample(block: Sample) -> str:
    columns = [f"<div><h4>the prompt</h4><pre>{html.escape(block.prompt, quote=False)}</pre></div>"]
    for who, text in block.texts:
        marked = mark(block.prompt, text, lambda kind, tag: f'<mark class="{KINDS[kind]}" title="{kind}">{tag}</mark>')
        columns.append(f"<div><h4>{inline(who)}</h4><pre>{marked}</pre></div>")
    return f'<div class="sample">{"".join(columns)}</div>'


def drawing(file: Path, prefix: str, alt: str) -> str:
    """The SVG itself, in the page's colours. Of its names those in use are kept: the figure's own, and each once."""
    svg = file.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used, seen = set(re.findall(r'(?:href="#|url\(#)([^")]*)', svg)), set()

    def name(match: re.Match[str]) -> str:
        kept = match[1] in used and match[1] not in seen
        seen.add(match[1])
        return f' id="{prefix}-{match[1]}"' if kept else ""

    svg = re.sub(r' id="([^"]*)"', name, svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = svg.replace(INK, "currentColor").replace(PAPER, "none")
    size = re.search(r'<svg[^>]*?width="([\d.]+)pt"', svg)
    svg = re.sub(r'(<svg[^>]*?) width="[\d.]+pt"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[\d.]+pt"', r"\1", svg, count=1)
    widest = f' style="max-width: {float(size[1]) * 4 / 3:.0f}px"' if size else ""
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt)}"{widest}', 1)
