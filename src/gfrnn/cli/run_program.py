"""`gfrnn run-program RUN FILE`: what a trained model says a program prints, how sure it is, and the truth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gfrnn.cli.common import add_device
from gfrnn.cli.options import Parser
from gfrnn.errors import DataError, UsageError
from gfrnn.storage.files import read_named
from gfrnn.tasks.programs.language import MOST_CHARACTERS, evaluate

if TYPE_CHECKING:
    from gfrnn.models.seq2seq import Answer

WIDEST_BEAM = 1000


def main(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn run-program", description="Ask a trained model what a program prints.")
    add = parser.add_argument
    add("run", metavar="RUN", type=str, help="a run folder or a saved model")
    add("file", metavar="FILE", nargs="?", type=str, default="-", help="the program; - or nothing: standard input")
    add("--beam", type=int, default=1, help="answers kept while searching; 1: greedy [1]")
    add_device(parser)
    add("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    if not 1 <= args.beam <= WIDEST_BEAM:
        raise UsageError(f"--beam must be from 1 to {WIDEST_BEAM} (got {args.beam})")
    name = "standard input" if args.file == "-" else args.file
    source = read_program(args.file, name)
    try:
        truth = str(evaluate(source))
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    from gfrnn.models.device import find_device
    from gfrnn.models.seq2seq import Seq2Seq

    model = Seq2Seq.from_pretrained(args.run).to(find_device(args.device))
    answers = model.greedy([source]) if args.beam == 1 else model.beam(source, args.beam)
    if args.json:
        print(json.dumps({"source": source, "truth": truth, "answers": [as_json(answer) for answer in answers]}))
    else:
        print(page(source, truth, answers))
    return 0


def read_program(file: str, name: str) -> str:
    """The text of the program, without the newline at its end."""
    try:
        source = read_named(file, 4 * MOST_CHARACTERS).decode().rstrip("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not text: byte {error.start} is not UTF-8") from None
    if not source.strip():
        raise DataError(f"{name} is empty")
    return source


def as_json(answer: Answer) -> dict[str, Any]:
    return {"answer": answer.text, "probability": answer.probability, "confidence": list(answer.confidence)}


def page(source: str, truth: str, answers: list[Answer]) -> str:
    """The program, the answer with its confidence under every digit, and the truth."""
    best = answers[0]
    symbols = [*best.text, "end"][: len(best.confidence)]
    verdict = "right" if best.text == truth else "wrong"
    lines = [
        *(f"    {line}" for line in source.split("\n")),
        "",
        f"the model says  {best.text or '(nothing)'}   ({verdict}; probability {best.probability:.2g})",
        f"the truth is    {truth}",
        "",
        "symbol          " + "".join(f"{symbol:>5}" for symbol in symbols),
        "confidence, %   " + "".join(f"{100 * p:5.0f}" for p in best.confidence),
    ]
    if len(answers) > 1:
        lines += ["", "also considered"]
        lines += [f"  {answer.text or '(nothing)':>16}   {answer.probability:.2g}" for answer in answers[1:]]
    return "\n".join(lines)
