"""`gfrnn train RECIPE`: train, or continue what the run folder holds."""

import os
import shlex
from pathlib import Path
from typing import Literal

from gfrnn.cli.common import add_device, print_report, set_threads
from gfrnn.cli.options import Namespace, Parser, dashed
from gfrnn.errors import UsageError
from gfrnn.training.config import BUDGET, Config
from gfrnn.training.trackers import TRACKERS


def main(argv: list[str]) -> int:
    config, given, args = parse_train(argv)
    if "WORLD_SIZE" in os.environ:  # torch's own words about a lost connection are pages; ours is a sentence
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from gfrnn.training.signals import leaving_at_once

    with leaving_at_once():  # the import of torch takes seconds
        set_threads(args.threads)
        from gfrnn.cli.progress import displays
        from gfrnn.training.run import train as run
    out = args.out or Path("runs") / config.recipe
    shown = displays(args.quiet or args.json)
    how = {"resume": args.resume, "extend": args.extend, "init": args.init, "device": args.device}
    how["shorter"] = shorter(config.recipe)
    result = run(config, out, given=given, **how, trackers=args.log, progress=shown)
    if result:
        print_report(result, args.json)
        if not args.json:
            print(next_steps(out, config.task))
    return 0


def shorter(recipe: str) -> str:
    """What to ask for instead of a recipe that takes long."""
    from gfrnn.recipes import load

    twin = recipe.replace("hutter-", "modern-") if recipe.startswith("hutter-") else f"modern-{recipe}"
    return f"--minutes 30, or the recipe {twin}" if twin in load() and twin != recipe else "--minutes 30"


def next_steps(out: Path, task: str) -> str:
    """What can be done with a run."""
    run = shlex.quote(str(out))
    steps = {"eval": "how good it is", "plot": "its learning curve"}
    steps |= {"generate": "what it writes"} if task == "hutter" else {"run-program": "what it says a program prints"}
    wide = max(map(len, steps)) + len(run) + 10
    return "\n".join(["", "next:", *(f"  {f'gfrnn {verb} {run}':<{wide}}{what}" for verb, what in steps.items())])


def parse_train(argv: list[str]) -> tuple[Config, set[str], Namespace]:
    """What `gfrnn train` is asked for: the configuration, which of its options were typed, and the other options."""
    from gfrnn.recipes import find, load

    about = "Train a recipe in the folder --out; the same command again continues what is there."
    named = [0] if argv and not argv[0].startswith("-") else [i for i, word in enumerate(argv) if word in load()]
    if not named and not {"-h", "--help"} & set(argv):
        raise UsageError("gfrnn train RECIPE [options]: name a recipe first (gfrnn recipes lists them)")
    recipe = find(argv[named[-1]] if named else "hutter-gated-lstm")
    words = [word for i, word in enumerate(argv) if i not in named[-1:]]
    parser = Parser(prog="gfrnn train", usage="gfrnn train RECIPE [options]", description=about)
    parser.add_argument("--out", type=Path, help="run folder [runs/RECIPE]")
    parser.add_argument(
        "--resume", type=Literal["auto", "never"], default="auto", help="auto: continue what --out holds; never: refuse"
    )
    parser.add_argument("--init", type=str, help="start from a saved model: a folder, a run, or a name in the package")
    parser.add_argument("--extend", action="store_true", help="give a finished run a larger budget, and go on")
    parser.add_argument(
        "--log",
        type=Literal[TRACKERS],
        action="append",
        default=[],
        help="a tracker to tell what metrics.jsonl is told; may be given several times",
    )
    parser.add_argument("--threads", type=int, help="CPU threads [torch's choice]")
    add_device(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    for name, section in recipe.config.sections.items():
        parser.add_section(section, f"{name} options, as in {recipe.name}")
    args = parser.parse_args(words)
    typed = {dashed(word).split("=")[0] for word in words}
    given = {key for key in recipe.config.options if f"--{key.replace('_', '-')}" in typed}
    changes = {key: getattr(args, key) for key in given}
    if changes.get("data"):
        changes["data"] = lasting(changes["data"])
    if given & set(BUDGET):  # a budget on the command line replaces the recipe's
        changes = dict.fromkeys(BUDGET) | changes
    return recipe.config.replace(**changes), given, args


def lasting(data: str) -> str:
    """The path of a text as it is read from other folders too; the word excerpt stays."""
    return data if data == "excerpt" and not Path("excerpt").exists() else str(Path(data).absolute())
