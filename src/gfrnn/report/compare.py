"""Two models' continuations of the same text, side by side, and the tags they opened and closed."""

import re
import textwrap
from collections import Counter
from itertools import zip_longest

TAG = re.compile(r"<(/?)([A-Za-z][\w:]*)[^<>]*?(/?)>")
BRACKETS = {"[[": "]]", "{{": "}}"}


def tags(text: str) -> dict[str, tuple[int, int]]:
    """How often each tag (and wiki bracket) is opened and closed; `<minor />` is neither.

    >>> tags("<page><title>x</title> [[link]] <minor /> <page>")
    {'page': (2, 0), 'title': (1, 1), '[[ ]]': (1, 1)}
    """
    opened: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    for end, name, alone in TAG.findall(text):
        if not alone:
            (closed if end else opened)[name] += 1
    for left, right in BRACKETS.items():
        opened[f"{left} {right}"] += text.count(left)
        closed[f"{left} {right}"] += text.count(right)
    return {name: (opened[name], closed[name]) for name in [*opened, *closed] if opened[name] or closed[name]}


def side_by_side(titles: tuple[str, str], texts: tuple[str, str], width: int = 100) -> str:
    """Two texts in two columns."""
    half = (width - 3) // 2
    columns = [[line for raw in text.splitlines() for line in textwrap.wrap(raw, half) or [""]] for text in texts]
    lines = [f"{titles[0]:<{half}} | {titles[1]}", f"{'-' * half}-+-{'-' * half}"]
    lines += [f"{left:<{half}} | {right}" for left, right in zip_longest(*columns, fillvalue="")]
    return "\n".join(lines)


def tag_table(titles: tuple[str, str], texts: tuple[str, str]) -> str:
    """The tags of both texts (the prompt included), opened/closed."""
    counts = [tags(text) for text in texts]
    names = list(dict.fromkeys([*counts[0], *counts[1]]))
    lines = [f"{'opened/closed':<16}{titles[0]:>24}{titles[1]:>24}"]
    for name in names:
        shown = ["{}/{}".format(*count.get(name, (0, 0))) for count in counts]
        lines.append(f"{name:<16}{shown[0]:>24}{shown[1]:>24}")
    return "\n".join(lines)
