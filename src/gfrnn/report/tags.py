"""XML tags in a text that may have been cut anywhere: which are closed again, and which are left open."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gfrnn.report.compare import TAG

Kind = Literal["closed", "left open", "closing", "stray"]


class Tag(NamedTuple):
    """Where a tag stands, its name, and what becomes of it. A stray one closes what was never opened."""

    start: int
    end: int
    name: str
    kind: Kind


def find_tags(text: str) -> list[Tag]:
    """The tags of a text in order, without those like `<minor />`.

    A closing tag closes the last open one of its name; what was opened inside of that and is still open stays open.

    >>> [(tag.name, tag.kind) for tag in find_tags("<id>7</id> <username>Ro</contributor>")]
    [('id', 'closed'), ('id', 'closing'), ('username', 'left open'), ('contributor', 'stray')]
    """
    found: list[Tag] = []
    open_ones: list[int] = []  # their places in `found`
    for match in TAG.finditer(text):
        end, name, alone = match.groups()
        if alone:
            continue
        if not end:
            open_ones.append(len(found))
            found.append(Tag(match.start(), match.end(), name, "left open"))
            continue
        partner = next((place for place in reversed(open_ones) if found[place].name == name), None)
        found.append(Tag(match.start(), match.end(), name, "stray" if partner is None else "closing"))
        if partner is not None:
            found[partner] = found[partner]._replace(kind="closed")
            del open_ones[open_ones.index(partner) :]
    return found


def closed_and_opened(text: str, begin: int = 0) -> tuple[int, int]:
    """Of the tags that are opened from `begin` on, how many are closed again, and how many there are.

    >>> closed_and_opened("<page> <id>7</id> <username>Ro")
    (1, 3)
    """
    kinds = [tag.kind for tag in find_tags(text) if tag.start >= begin]
    return kinds.count("closed"), kinds.count("closed") + kinds.count("left open")
