"""The verbs: each parses its options, then imports what it needs and calls it."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

from gfrnn.config import BUDGET, Config
from gfrnn.errors import UsageError
from gfrnn.options import Namespace, Parser, add_dataclass, dashed

MOST_THREADS = 256


def train(argv: list[str]) -> int:
    config, given, args = parse_train(argv)
    if "WORLD_SIZE" in os.environ:  # torch's own words about a lost connection are pages; ours is a sentence
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from gfrnn.training.signals import leaving_at_once

    with leaving_at_once():  # the import of torch takes seconds
        set_threads(args.threads)
        from gfrnn.training.run import train as run
    out = args.out or Path("runs") / config.recipe
    result = run(config, out, given=given, resume=args.resume, quiet=args.quiet or args.json)
    if result:
        print_report(result, args.json)
    return 0


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
    parser.add_argument("--threads", type=int, help="CPU threads [torch's choice]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    for name, section in recipe.config.sections.items():
        add_dataclass(parser, section, f"{name} options, as in {recipe.name}")
    args = parser.parse_args(words)
    typed = {dashed(word).split("=")[0] for word in words}
    given = {key for key in recipe.config.options if f"--{key.replace('_', '-')}" in typed}
    changes = {key: getattr(args, key) for key in given}
    if changes.get("data") and (changes["data"] != "excerpt" or Path("excerpt").exists()):
        changes["data"] = str(Path(changes["data"]).absolute())  # config.yaml is read from other folders too
    if given & set(BUDGET):  # a budget on the command line replaces the recipe's
        changes = dict.fromkeys(BUDGET) | changes
    return recipe.config.replace(**changes), given, args


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
    wide = max(map(len, load()))
    print(f"{'recipe':<{wide}}{'parameters':>12}  {'the paper':>20}  about")
    for row in rows:
        target = row["metric"] if row["paper"] is None else f"{row['metric']} {row['paper']:.3f}"
        print(f"{row['recipe']:<{wide}}{row['parameters']:>12,}  {target:>20}  {row['about']}")
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
        from gfrnn.training.progress import Progress

        with Progress("download", quiet=args.json) as progress:
            corpus.download(tick=lambda done: progress.show_if_due(done, ""))
    text = corpus.load(args.data)
    splits = {name: len(text.split(name)) for name in ("train", "valid", "test")}
    unknown = Vocabulary().count_unknown(text.bytes)
    report = {"text": text.name, "bytes": len(text.bytes), "sha256": text.sha256, **splits}
    print_report(report | {"enwik8": text.is_enwik8, "unknown_bytes": unknown}, args.json)
    if text.fallback and not args.json:
        print(corpus.EXCERPT_NOTE)
    return 0


def evaluate(argv: list[str]) -> int:
    parser = Parser(
        prog="gfrnn eval", description="Bits per character of a text model; grid accuracies of a program model."
    )
    parser.add_argument("run", nargs="?", type=str, help="run or model folder [the model in the package]")
    parser.add_argument("--split", type=Literal["train", "valid", "test", "all"], help="[test; all of another text]")
    parser.add_argument("--data", type=str, help="another text: raw, .gz or .zip")
    parser.add_argument(
        "--unknown",
        type=Literal["refuse", "replace"],
        help="bytes the model lacks [refuse; of its own text: as trained]",
    )
    parser.add_argument("--half", action="store_true", help="also the BPC of weights stored in 16 bits")
    parser.add_argument("--quick", action="store_true", help="programs: fewer per cell")
    parser.add_argument("--threads", type=int, help="CPU threads [torch's choice]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    set_threads(args.threads)
    from gfrnn import speak

    if speak.architecture(args.run) == "Seq2Seq":
        if args.split or args.data or args.half or args.unknown:
            options = "--split, --data, --unknown or --half"
            raise UsageError(f"{args.run} is a program model: its grid is evaluated, not {options}")
        from gfrnn.evaluate_programs import report_run

        return report_run(args.run, quick=args.quick, as_json=args.json, quiet=args.quiet)
    if args.quick:
        raise UsageError("--quick is for program models: a text is scored as a whole (--split, --data)")
    report = speak.evaluate(args.run, args.split, args.data, args.unknown, args.quiet or args.json, args.half)
    print_report(report, args.json)
    return 0


def generate(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn generate", description="Continue a text, byte by byte.")
    parser.add_argument("run", nargs="?", type=str, help="run or model folder [the model in the package]")
    parser.add_argument("--prompt", type=str, help="the text to continue [<page>]")
    parser.add_argument("--prompt-file", type=str, help="a file with it; - reads standard input")
    parser.add_argument("--chars", type=int, default=500, help="bytes to generate [500]")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1 safer, above 1 wilder, 0 greedy [1]")
    parser.add_argument("--top-k", type=int, help="draw from the k most probable only")
    parser.add_argument("--top-p", type=float, help="draw from the most probable that sum to p only")
    parser.add_argument("--seed", type=int, help="the same seed gives the same text")
    parser.add_argument("--samples", type=int, default=1, help="so many continuations [1]")
    parser.add_argument(
        "--half", action="store_true", help="read weights stored in 16 bits: faster, slightly other text"
    )
    parser.add_argument("--compare", type=str, help="another run: both continuations side by side, with their tags")
    parser.add_argument("--unknown", type=Literal["refuse", "replace"], default="refuse", help="bytes the model lacks")
    parser.add_argument("--threads", type=int, help="CPU threads [torch's choice]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    set_threads(args.threads)
    from gfrnn import speak
    from gfrnn.generate import Sampling

    if args.chars < 0 or args.samples < 1:
        raise UsageError(f"--chars is 0 or more and --samples 1 or more, not {args.chars} and {args.samples}")
    if args.compare is not None and args.samples > 1:
        raise UsageError("--compare shows one continuation of each model: leave --samples away")
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    prompt = speak.prompt_bytes(args.prompt, args.prompt_file)
    speak.generate(
        args.run, prompt, args.chars, sampling, args.samples, args.compare, args.unknown, args.json, args.half
    )
    return 0


def plot(argv: list[str]) -> int:
    parser = Parser(
        prog="gfrnn plot",
        description="Validation curves of runs against time, characters and updates; or heat maps of program models.",
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", type=Path, help="files to write, without suffix [curves, or heatmap]")
    parser.add_argument(
        "--heatmap",
        action="store_true",
        help="two program models of each unit: accuracies by nesting and length, and their difference",
    )
    parser.add_argument("--quick", action="store_true", help="heat maps: 200 programs a cell instead of 2,000")
    parser.add_argument("--threads", type=int, help="heat maps: CPU threads of an evaluation [torch's choice]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print the names of the files as JSON")
    args = parser.parse_args(argv)
    if args.out is not None and not args.out.name:
        raise UsageError(f"--out names the files to write, without their suffix: '{args.out}' is no name")
    if args.out is not None and args.out.suffix in (".svg", ".png"):
        args.out = args.out.with_suffix("")
    if args.heatmap:
        set_threads(args.threads)
        from gfrnn.report import heatmap

        files = heatmap.plot(
            args.runs,
            args.out or Path("heatmap"),
            quick=args.quick,
            quiet=args.quiet or args.json,
            tell=lambda words: print(words, file=sys.stderr if args.json else sys.stdout),
        )
    elif args.quick or args.threads is not None:
        raise UsageError("--quick and --threads are for evaluating program models: they go with --heatmap")
    else:
        from gfrnn.report import curves

        files = curves.plot(args.runs, args.out or Path("curves"))
    print(json.dumps([str(file) for file in files]) if args.json else "\n".join(map(str, files)))
    return 0


def set_threads(threads: int | None) -> None:
    if threads is None:
        return
    if threads < 1:
        raise UsageError(f"--threads must be at least 1, got {threads}")
    if threads > MOST_THREADS:  # the library that starts them does not fail gently
        raise UsageError(f"--threads must be at most {MOST_THREADS}, got {threads}")
    import torch

    torch.set_num_threads(threads)


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
