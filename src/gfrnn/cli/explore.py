"""`gfrnn explore`: writes the page in which a model runs."""

import json
import sys
import webbrowser
from pathlib import Path

from gfrnn.cli.common import packaged
from gfrnn.cli.options import Parser
from gfrnn.errors import DataError, UsageError

MOST_MODELS = 2


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="gfrnn explore",
        description="One HTML page in which a text model runs, and its gates can be seen and touched.",
    )
    parser.add_argument(
        "runs", nargs="*", type=str, help="run or model folders, two at most [the model in the package]"
    )
    parser.add_argument("--out", type=Path, default=Path("page.html"), help="the file to write [page.html]")
    parser.add_argument("--open", action="store_true", help="show it in the browser")
    parser.add_argument("--max-mb", type=float, default=24.0, help="refuse to write a larger page, in MB [24]")
    parser.add_argument("--json", action="store_true", help="print the page's name and size as JSON")
    args = parser.parse_args(argv)
    if len(args.runs) > MOST_MODELS:
        raise UsageError(f"a page shows {MOST_MODELS} models side by side, not {len(args.runs)}")
    if not args.max_mb > 0:
        raise UsageError(f"--max-mb must be greater than 0, got {args.max_mb}")
    content = written(args.runs, args.max_mb)
    if args.out.is_dir():
        raise UsageError(f"--out {args.out} is a folder: name the file to write")
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_bytes(content)
    except OSError as error:
        raise DataError(f"{args.out} cannot be written: {error.strerror}") from error
    if args.json:
        print(json.dumps({"page": str(args.out), "bytes": len(content)}))
    else:
        print(f"{args.out} ({len(content) / 1e6:.1f} MB): open it in a browser, send it, or put it on a web site")
    if args.open and not webbrowser.open(args.out.resolve().as_uri()):
        print(f"no browser was found: open {args.out} by hand", file=sys.stderr)
    return 0


def written(runs: list[str], max_mb: float) -> bytes:
    from gfrnn.explore.pack import load, names_of, packed
    from gfrnn.explore.page import page

    runs = runs or [packaged()]
    content = page([packed(load(run), name) for run, name in zip(runs, names_of(runs), strict=True)]).encode()
    if len(content) > max_mb * 1e6:
        size = f"{len(content) / 1e6:.1f} MB"
        raise UsageError(f"the page would have {size}, more than --max-mb {max_mb:g}: a larger number lets it through")
    return content
