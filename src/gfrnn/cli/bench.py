"""`gfrnn bench`: speed and memory on this machine, side by side with what one would use otherwise.

Contenders take turns (A B C A B C ...), after each was found to compute what the reference computes; medians and
quartiles of the rounds are shown, and ratios are taken round by round. torch is imported once the options are read.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Literal

from gfrnn.bench.plan import FULL, LEARNERS, QUICK, SECTIONS, Plan
from gfrnn.cli.common import add_precision, available_cores
from gfrnn.cli.options import Namespace, Parser
from gfrnn.errors import UsageError


def main(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn bench", description="Measure speed and memory, side by side, on this machine.")
    parser.add_argument("--quick", action="store_true", help="under a minute, less exact")
    parser.add_argument(
        "--only", nargs="+", type=Literal[SECTIONS], metavar="NAME", help=f"these sections: {', '.join(SECTIONS)}"
    )
    parser.add_argument("--distributed", action="store_true", help="instead: two processes against one, whole updates")
    parser.add_argument(
        "--learning",
        action="store_true",
        help="instead: what one would pick otherwise (nn.LSTM, minGRU, a transformer) learns beside ours, with as many "
        "parameters and minutes; with --out what is done stays done, and the same command goes on; processes with "
        "other --models may share a folder",
    )
    parser.add_argument("--minutes", type=float, help="learning: of updates for each model, on one core [30]")
    parser.add_argument("--search-minutes", type=float, help="learning: for each learning rate [a tenth of --minutes]")
    parser.add_argument(
        "--models",
        nargs="+",
        type=Literal[LEARNERS],
        metavar="NAME",
        help=f"learning: these [each, in the precision that is fast here]: {', '.join(LEARNERS)}",
    )
    parser.add_argument("--data", type=str, help="learning: the text [as gfrnn train]")
    parser.add_argument("--repeats", type=int, help="rounds of every comparison, however long they take")
    parser.add_argument("--threads", type=int, help="CPU threads [all cores]")
    add_precision(parser, "both, in the section precision")
    parser.add_argument("--out", type=Path, help="folder to save bench.json and bench.txt (scaling.*) in")
    parser.add_argument("--plot", type=Path, help="draw the results into this file, as .svg and .png")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print JSON: everything measured, and the environment")
    args = parser.parse_args(argv)
    refuse_mixtures(args)
    plan = plan_of(args.quick, args.repeats)
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads must be at least 1, got {args.threads}")
    if args.plot is not None:
        from gfrnn.report.bench_plot import require_matplotlib

        require_matplotlib()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    if args.learning:
        return learning_bench(args)
    if args.distributed:
        return distributed_bench(plan, args.out, args.json, args.quiet)
    import torch

    torch.set_num_threads(args.threads or available_cores())
    from gfrnn.bench.output import as_text, save
    from gfrnn.bench.run import run

    results = run(plan, args.only or SECTIONS, silent if args.quiet else tell, precisions(args.precision))
    print(json.dumps(results, indent=1) if args.json else as_text(results))
    if args.out is not None:
        save(results, args.out)
    if args.plot is not None:
        from gfrnn.report.bench_plot import draw

        for path in draw(results, args.plot):
            tell(f"wrote {path}")
    return 0


def precisions(asked: str | None) -> tuple[str, ...]:
    """Those of the section precision."""
    from gfrnn.bench.precision import PRECISIONS
    from gfrnn.models.precision import resolve

    return PRECISIONS if asked is None else (resolve(asked),)


def refuse_mixtures(args: Namespace) -> None:
    if args.distributed and (args.only or args.plot or args.threads):
        raise UsageError("--distributed is a bench of its own: no --only, --plot or --threads with it")
    if args.learning and (args.only or args.plot or args.distributed or args.repeats or args.quick):
        raise UsageError(
            "--learning is a bench of its own: no --only, --plot, --distributed, --repeats or --quick with it"
        )
    for name in ("minutes", "search_minutes", "models", "data"):
        if getattr(args, name) is not None and not args.learning:
            raise UsageError(f"--{name.replace('_', '-')} is for the models that learn: add --learning")
    for name in ("minutes", "search_minutes"):
        value = getattr(args, name)
        if value is not None and not 0 < value <= 100_000:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, got {value:g}")


def learning_bench(args: Namespace) -> int:
    import torch

    from gfrnn.bench.learning.contenders import CONTENDERS, sibling, unless_named, why_not
    from gfrnn.bench.learning.output import as_markdown, race_all
    from gfrnn.bench.learning.race import Race
    from gfrnn.cli.progress import displays
    from gfrnn.models.vocabulary import Vocabulary
    from gfrnn.tasks.text import corpus

    torch.set_num_threads(args.threads or 1)
    minutes = Race.minutes if args.minutes is None else args.minutes
    race = Race(minutes, minutes / 10 if args.search_minutes is None else args.search_minutes)
    text = corpus.load(args.data)
    if text.fallback:
        tell(corpus.EXCERPT_NOTE)
    chosen = [contender for contender in CONTENDERS if contender.name in args.models] if args.models else unless_named()
    for contender in list(chosen):
        if why := why_not(contender):
            if args.models:
                raise UsageError(f"--models {contender.name}: {why}")
            other = next((plain for plain in CONTENDERS if plain.name == sibling(contender)), None)
            at = chosen.index(contender)
            chosen[at : at + 1] = [other] if other else []
            tell(f"{contender.name} is left out: {why}" + (f"; {other.name} takes part instead" if other else ""))
    symbols = lambda part: Vocabulary().encode(part, text.name)  # noqa: E731
    progress = displays(args.quiet or args.json)
    results = race_all(chosen, text, symbols, race, torch.get_num_threads(), args.out, progress)
    print(json.dumps(results, indent=1) if args.json else as_markdown(results), end="\n" if args.json else "")
    return 0


def distributed_bench(plan: Plan, out: Path | None, as_json: bool, quiet: bool) -> int:
    from gfrnn.bench import distributed

    results = distributed.run(plan, silent if quiet else tell)
    print(json.dumps(results, indent=1) if as_json else distributed.as_text(results))
    if out is not None:
        distributed.save(results, out)
    return 0


def plan_of(quick: bool, repeats: int | None) -> Plan:
    plan = QUICK if quick else FULL
    if repeats is None:
        return plan
    if repeats < 1:
        raise UsageError(f"--repeats must be at least 1, got {repeats}")
    return dataclasses.replace(plan, repeats=repeats, least_repeats=repeats)


def tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def silent(sentence: str) -> None:
    pass
