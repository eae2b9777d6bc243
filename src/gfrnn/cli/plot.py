"""`gfrnn plot RUN ...`: learning curves, or heat maps of program models."""

import json
import sys
from pathlib import Path

from gfrnn.cli.common import set_threads
from gfrnn.cli.options import Parser
from gfrnn.errors import DataError, UsageError


def main(argv: list[str]) -> int:
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
    runs = args.runs if args.heatmap else run_folders(args.runs)
    if args.heatmap:
        set_threads(args.threads)
        from gfrnn.cli.progress import displays
        from gfrnn.report import heatmap

        files = heatmap.plot(
            runs,
            args.out or Path("heatmap"),
            quick=args.quick,
            progress=displays(args.quiet or args.json),
            tell=lambda words: print(words, file=sys.stderr if args.json else sys.stdout),
        )
    elif args.quick or args.threads is not None:
        raise UsageError("--quick and --threads are for evaluating program models: they go with --heatmap")
    else:
        from gfrnn.report import curves

        files = curves.plot(runs, args.out or Path("curves"))
    print(json.dumps([str(file) for file in files]) if args.json else "\n".join(map(str, files)))
    return 0


def run_folders(named: list[Path]) -> list[Path]:
    """Those of the paths that are run folders, each once; the others are named, and an error if there is no run."""
    from gfrnn.storage.run_folder import CONFIG, METRICS

    found: dict[Path, Path] = {}
    skipped: list[Path] = []
    for path in named:
        if not path.exists():
            raise DataError(f"{path} does not exist")
        if (path / METRICS).exists() or (path / CONFIG).exists():
            found.setdefault(path.resolve(), path)
        else:
            skipped.append(path)
    if not found:
        raise DataError(f"{named[0]} is not a run folder: it has no {METRICS}")
    for path in skipped:
        print(f"skipped {path}: it is not a run folder", file=sys.stderr)
    return list(found.values())
