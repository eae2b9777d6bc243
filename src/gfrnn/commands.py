"""The verbs: each parses its options, then imports what it needs and calls it."""

from gfrnn.options import Parser


def doctor(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn doctor", description="Versions, CPU, threads, and which backends can run or why not.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from gfrnn.ops.doctor import report

    return report(json=args.json)
