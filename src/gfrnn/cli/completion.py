"""`gfrnn completion SHELL`: the script with which a shell completes our verbs, options and recipes."""

import argparse
import importlib
import importlib.util
from pathlib import Path
from typing import Any, Literal

from gfrnn.cli import VERBS
from gfrnn.cli.options import Parser, parser_of
from gfrnn.errors import UsageError

ABOUT = """Print the script that completes gfrnn in your shell. Now: eval "$(gfrnn completion bash)", which in ~/.bashrc
is for good; for zsh: gfrnn completion zsh > FOLDER/_gfrnn, where FOLDER is one of $fpath."""


def main(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn completion", description=ABOUT)
    parser.add_argument("shell", type=Literal["bash", "zsh", "tcsh"], help="the shell to write it for")
    args = parser.parse_args(argv)
    if importlib.util.find_spec("shtab") is None:
        raise UsageError("completion needs shtab, not installed here: pip install shtab")
    import shtab

    print(shtab.complete(whole_parser(shtab.FILE), args.shell))
    return 0


def whole_parser(file: Any) -> argparse.ArgumentParser:
    """All verbs in one parser. Where a path is wanted, `file` is what completes it."""
    whole = argparse.ArgumentParser("gfrnn")
    verbs = whole.add_subparsers(dest="verb")
    for verb, (module, help) in VERBS.items():
        parser = parser_of(importlib.import_module(f"gfrnn.cli.{module}").main)
        described = verbs.add_parser(verb, help=help, description=help, parents=[parser], add_help=False)
        if verb == "launch":
            described.add_argument("started", choices=["train"], help="what it starts")
        if verb in ("train", "launch"):  # these two look for the recipe themselves, it may stand anywhere
            from gfrnn.recipes import load

            described.add_argument("recipe", choices=list(load()), help="see gfrnn recipes")
        for action in described._actions:
            words = action.metavar if isinstance(action.metavar, str) else ""
            if words.startswith("{"):  # checked by their `type`, which says it in our words
                action.choices = words.strip("{}").split(",")
            elif action.type is Path or action.dest in ("run", "runs", "data", "init"):
                action.complete = file  # type: ignore[attr-defined]
    return whole
