"""`gfrnn programs`: print programs and their answers, generated or read from a file, checked by Python if asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from gfrnn.errors import DataError, UsageError
from gfrnn.options import Parser
from gfrnn.tasks.programs.generator import CURRICULA, ORDERED, SPLITS, Program, Settings, stream
from gfrnn.tasks.programs.language import evaluate
from gfrnn.tasks.programs.symbols import encode_source, encode_target
from gfrnn.tasks.programs.verify import verified
from gfrnn.training.progress import Progress

LONGEST_LINE = 1 << 16
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
    "split": None,
    "seed": 1,
    "first": 0,
}
FIELDS = {"source": str, "target": str, "length": int, "nesting": int}


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
    with Progress("programs", quiet=of is None, aside=True) as progress:
        for count, program in enumerate(programs, 1):
            if as_json:
                out.write(dump(program))
            else:
                out.write(f"{program.source}\n# {program.target}\n\n")
            if of is not None and count % 1000 == 0:
                progress.show_if_due(count / of, f"{count:,}")
        out.flush()
    return count


def dump(program: Program) -> str:
    """One line of a file of programs."""
    return json.dumps(program._asdict()) + "\n"


def read(path: str | Path) -> Iterator[Program]:
    """The programs of a JSON-lines file; a DataError names the first line that is not one."""
    count = 0
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for count, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), ""), 1):
            try:
                yield parse(line)
            except DataError as error:
                raise DataError(f"{path} line {count}: {error}") from None
    if not count:
        raise DataError(f"{path} is empty")


def parse(line: str) -> Program:
    """One line of such a file.

    >>> parse('{"source": "print(7)", "target": "7", "length": 1, "nesting": 1}').target
    '7'
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError("not a JSON object") from None
    if not isinstance(row, dict) or set(row) != set(FIELDS):
        raise DataError(f"not an object with exactly the keys {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        if type(row[name]) is not kind:
            raise DataError(f'"{name}" is not {"a text" if kind is str else "a whole number"}')
    if min(row["length"], row["nesting"]) < 1:
        raise DataError("length and nesting are counted from 1")
    encode_source(row["source"])
    encode_target(row["target"])
    return Program(**row)


def _evaluated(programs: Iterator[Program], origin: str) -> Iterator[Program]:
    for number, program in enumerate(programs, 1):
        try:
            value = str(evaluate(program.source))
        except DataError as error:
            raise DataError(f"{origin} {number}: {error}") from None
        if value != program.target:
            raise DataError(f"{origin} {number}: the program prints {value}, the file says {program.target}")
        yield program
