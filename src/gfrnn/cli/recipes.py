"""`gfrnn recipes`: what can be trained, how large it is, and what it costs."""

import json
import shutil
import sys
import textwrap
from typing import Any

from gfrnn.cli.options import Parser

PIPED = 1000  # columns of a file: no line is too long for it
NOTE = (
    "paper: what it reports, test bits per character (for programs it has heat maps only). time: an estimate, one core "
    "with the fused op, as fast as in results/modern-gated-lstm. `gfrnn train RECIPE --minutes 30` fits any of them "
    "into half an hour."
)
ABOUT = "about"
LEFT = ("recipe", "model", ABOUT)  # the other columns are numbers


def main(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn recipes", description="What can be trained, how large it is, and what it costs.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from gfrnn.recipes import load

    recipes = list(load().values())
    if args.json:
        print(json.dumps([as_json(recipe) for recipe in recipes], indent=1))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED
    texts = [as_cells(recipe, "characters") for recipe in recipes if recipe.programs is None]
    programs = [as_cells(recipe, "programs") for recipe in recipes if recipe.programs is not None]
    for rows in (texts, programs):
        print(table(rows, width) + "\n")
    print(textwrap.fill(NOTE, min(width, 100), break_on_hyphens=False))
    return 0


def as_json(recipe: Any) -> dict[str, Any]:
    options = recipe.config.options
    return {
        "recipe": recipe.name,
        "unit": options["unit"],
        "wiring": options["wiring"],
        "layers": options["num_layers"],
        "units": options["hidden_size"],
        "parameters": recipe.parameters,
        "paper": recipe.paper,
        "metric": recipe.metric,
        "characters": recipe.characters,
        "programs": recipe.programs,
        "hours": round(recipe.seconds / 3600, 1),
        "about": recipe.about,
        "config": recipe.config.to_mapping(),
    }


def as_cells(recipe: Any, reads: str) -> dict[str, str]:
    from gfrnn.training.plan import in_millions, in_words

    options = recipe.config.options
    return {
        "recipe": recipe.name,
        "model": f"{options['unit']} {options['num_layers']}x{options['hidden_size']}",
        "parameters": in_millions(recipe.parameters),
        "paper": "maps" if recipe.paper is None else f"{recipe.paper:.3f}",
        reads: in_millions(getattr(recipe, reads)),
        "time": in_words(recipe.seconds),
        ABOUT: recipe.about,
    }


def table(rows: list[dict[str, str]], width: int) -> str:
    """As many of the columns as fit, the first and the time before all."""
    names = list(rows[0])
    wide = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    for name in [name for name in reversed(names) if name not in ("recipe", "time")]:
        if sum(wide[kept] + 2 for kept in names) - 2 <= width:
            break
        names.remove(name)
    lines = [{name: name for name in rows[0]}, *rows]
    return "\n".join(
        "  ".join(f"{line[name]:{'<' if name in LEFT else '>'}{wide[name]}}" for name in names).rstrip()
        for line in lines
    )
