"""`gfrnn programs`: print programs and their answers, generated or read from a file, checked by Python if asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TextIO

from gfrnn.cli.options import Parser
from gfrnn.cli.progress import Bar
from gfrnn.errors import DataError, UsageError
from gfrnn.tasks.programs.generator import SPLITS, Program, stream
from gfrnn.tasks.programs.jsonl import dump, read
from gfrnn.tasks.programs.language import evaluate
from gfrnn.tasks.programs.settings import CURRICULA, LITERALS, ORDERED, Settings
from gfrnn.tasks.programs.verify import verified

SECONDS = 2.0  # of CPU time for one program under --verify
# The options that say which programs are generated, and what they are when nothing is said.
GENERATION = {
    "count": 10,
    "max_length": 10,
    "max_nesting": 5,
    "curriculum": "mix",
    "span": None,
    "length": None,
    "nesting": None,
    "literals": "ideal",
    "split": None,
    "seed": 1,
    "first": 0,
}


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    if args.seconds is None:
        args.seconds = SECONDS
    elif not args.verify:
        raise UsageError("--seconds is the time limit of --verify: alone it would change nothing")
    if not 0 < args.seconds <= 3600:
        raise UsageError(f"--seconds must be more than 0 and at most 3600 (got {args.seconds:g})")
    asked = {name: getattr(args, name) for name in GENERATION if getattr(args, name) is not None}
    if args.read is None:
        origin, programs = "program", _generated({**GENERATION, **asked})
    elif asked:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise UsageError(f"--read takes the programs of a file as they are: {options} would change nothing")
    else:
        origin, programs = f"{args.read} line", read(args.read)
    if args.verify:
        programs = verified(programs, args.seconds, origin)
    elif args.read is not None:
        programs = _evaluated(programs, origin)
    count = _write(programs, sys.stdout, as_json=args.json, of=None if args.read else args.count)
    if args.verify:
        print(f"Python agrees with {count:,} of {count:,} programs", file=sys.stderr)
    return 0


def _generated(asked: dict[str, Any]) -> Iterator[Program]:
    count, first = asked["count"], asked["first"]
    if count < 1 or first < 0:
        raise UsageError(f"--count must be at least 1 and --first at least 0 (got {count} and {first})")
    if asked["span"] is not None and asked["curriculum"] not in ORDERED:
        raise UsageError(f"--span is for the curricula {' and '.join(ORDERED)}: {asked['curriculum']} has no order")
    settings = Settings(
        asked["max_length"],
        asked["max_nesting"],
        asked["curriculum"],
        asked["length"],
        asked["nesting"],
        span=asked["span"] if asked["span"] is not None else first + count,
        literals=asked["literals"],
    )
    return stream(asked["seed"], count, settings, asked["split"], first)


def _parser() -> Parser:
    parser = Parser(
        prog="gfrnn programs",
        description="Programs of 'Learning to Execute' and their answers; the same options print the same programs.",
    )
    add = parser.add_argument
    add("--count", type=int, help="how many [10]")
    add("--max-length", type=int, help="literals go up to 10 ** length; length is at most this [10]")
    add("--max-nesting", type=int, help="operations in a program, at most [5]")
    add("--curriculum", choices=CURRICULA, help="how hardness is drawn [mix]")
    add(
        "--span",
        type=int,
        help="programs over which naive and combined reach the maximum [all asked for]",
    )
    add("--length", type=int, help="fix the length (a test cell)")
    add("--nesting", type=int, help="fix the nesting (a test cell)")
    add("--literals", choices=LITERALS, help="original: of 32 bits, as the paper's were, so at most 2 ** 32 [ideal]")
    add("--split", choices=SPLITS, help="only programs whose text belongs to this split [all]")
    add("--seed", type=int, help="which stream of programs [1]")
    add("--first", type=int, help="index of the first program in the stream [0]")
    add("--read", metavar="FILE", type=str, help="check the programs of a file (JSON lines) instead")
    add("--verify", action="store_true", help="run every program through Python; stop at the first disagreement")
    add("--seconds", type=float, help=f"with --verify: CPU seconds a program may take [{SECONDS:g}]")
    add("--json", action="store_true", help="one JSON object a line")
    return parser


def _write(programs: Iterator[Program], out: TextIO, *, as_json: bool, of: int | None) -> int:
    """Print them all, with a bar beside it if `of` says how many there will be."""
    count = 0
    with Bar("programs", quiet=of is None, aside=True) as progress:
        for count, program in enumerate(programs, 1):
            if as_json:
                out.write(dump(program))
            else:
                out.write(f"{program.source}\n# {program.target}\n\n")
            if of is not None and count % 1000 == 0:
                progress.show_if_due(count / of, f"{count:,}")
        out.flush()
    return count


def _evaluated(programs: Iterator[Program], origin: str) -> Iterator[Program]:
    for number, program in enumerate(programs, 1):
        try:
            value = str(evaluate(program.source))
        except DataError as error:
            raise DataError(f"{origin} {number}: {error}") from None
        if value != program.target:
            raise DataError(f"{origin} {number}: the program prints {value}, the file says {program.target}")
        yield program
