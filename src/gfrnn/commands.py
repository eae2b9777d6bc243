"""The verbs: each parses its options, then imports what it needs and calls it."""

import json
from pathlib import Path
from typing import Any

from gfrnn.config import BUDGET
from gfrnn.errors import UsageError
from gfrnn.options import Parser, add_dataclass, dashed


def train(argv: list[str]) -> int:
    from gfrnn.recipes import find, load

    about = "Train a recipe in the folder --out; the same command again continues what is there."
    name = next((word for word in argv if word in load()), argv[0] if argv else "-")
    if name.startswith("-") and {"-h", "--help"} & set(argv):
        name = "hutter-gated-lstm"
    elif name.startswith("-"):
        raise UsageError("gfrnn train RECIPE [options]: name a recipe first (gfrnn recipes lists them)")
    recipe = find(name)
    words = [word for word in argv if word != name]
    parser = Parser(prog="gfrnn train", usage="gfrnn train RECIPE [options]", description=about)
    parser.add_argument("--out", type=Path, help="run folder [runs/RECIPE]")
    parser.add_argument("--resume", type=str, default="auto", help="auto: continue what --out holds; never: refuse")
    parser.add_argument("--threads", type=int, help="CPU threads [torch's choice]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    for name, section in recipe.config.sections.items():
        add_dataclass(parser, section, f"{name} options, as in {recipe.name}")
    args = parser.parse_args(words)
    typed = {dashed(word).split("=")[0] for word in words}
    given = {key for key in recipe.config.options if f"--{key.replace('_', '-')}" in typed}
    changes = {key: getattr(args, key) for key in given}
    if given & set(BUDGET):  # a budget on the command line replaces the recipe's
        changes = dict.fromkeys(BUDGET) | changes
    config = recipe.config.replace(**changes)
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads must be at least 1, got {args.threads}")
    from gfrnn.training.run import train as run

    out = args.out or Path("runs") / recipe.name
    result = run(config, out, given=given, resume=args.resume, threads=args.threads, quiet=args.quiet or args.json)
    print_report(result, args.json)
    return 0


def recipes(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn recipes", description="What can be trained, with the paper's numbers.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from gfrnn.recipes import load

    rows = [
        {
            "recipe": recipe.name,
            "parameters": recipe.parameters,
            "paper": recipe.paper,
            "metric": recipe.metric,
            "about": recipe.about,
            "config": recipe.config.to_mapping(),
        }
        for recipe in load().values()
    ]
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'recipe':<24}{'parameters':>12}  {'the paper':>20}  about")
    for row in rows:
        target = "" if row["paper"] is None else f"{row['metric']} {row['paper']:.3f}"
        print(f"{row['recipe']:<24}{row['parameters']:>12,}  {target:>20}  {row['about']}")
    return 0


def data(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn data", description="Which text would be used: find it, check it, or download enwik8.")
    parser.add_argument("--data", type=str, help="a text: raw, .gz or .zip")
    parser.add_argument("--download", action="store_true", help="fetch enwik8 into the cache folder (35 MB)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from gfrnn.tasks import corpus
    from gfrnn.vocabulary import Vocabulary

    if args.download:
        corpus.download()
    text = corpus.load(args.data)
    splits = {name: len(text.split(name)) for name in ("train", "valid", "test")}
    unknown = Vocabulary().count_unknown(text.bytes)
    report = {"text": text.name, "bytes": len(text.bytes), "sha256": text.sha256, **splits}
    print_report(report | {"enwik8": text.is_enwik8, "unknown_bytes": unknown}, args.json)
    if text.name == "enwik8 excerpt" and not args.json:
        print(corpus.EXCERPT_NOTE)
    return 0


def doctor(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn doctor", description="Versions, CPU, threads, and which backends can run or why not.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from gfrnn.ops.doctor import report

    return report(json=args.json)


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """Names and values: JSON for programs, one a line for people."""
    if as_json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        print(f"{name.replace('_', ' '):<20}{f'{value:.4f}' if isinstance(value, float) else shown}")
