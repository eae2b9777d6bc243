"""`gfrnn doctor`: what is installed, what the machine can do, and which backends run here, or why not."""

import json
import sys

from gfrnn.cli.options import Parser


def main(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn doctor", description="Versions, CPU, threads, and which backends can run or why not.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from gfrnn import ops
    from gfrnn.ops.doctor import facts

    found = facts()
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout)
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in found.items():
        if name not in ("backends", "auto"):
            table.add_row(name.replace("_", " "), str(value))
    console.print(table, "")
    backends = Table("backend", "state", "why not", box=None, pad_edge=False)
    for name in ops.AUTO:
        state = found["backends"][name]
        label = "active" if state["active"] else "not here"
        backends.add_row(name, label + (" (auto)" if name == found["auto"] else ""), "; ".join(state["why_not"]))
    console.print(backends)
    return 0
