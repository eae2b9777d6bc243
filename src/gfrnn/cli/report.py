"""`gfrnn report [CAMPAIGN ...]`: the paper's tables and figures beside ours, and a verdict for each of its claims."""

from __future__ import annotations

import json
from pathlib import Path

from gfrnn.cli.common import set_threads
from gfrnn.cli.options import Parser
from gfrnn.errors import UsageError

CAMPAIGN, PUBLISHED, CLAIMS = Path("runs/campaign"), "results", "claims.yaml"


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="gfrnn report",
        description="Every table and figure of the paper beside ours, and a verdict for each of its claims: one HTML "
        "page, and the same in Markdown.",
    )
    add = parser.add_argument
    add("campaigns", nargs="*", type=Path, help="folders with runs [runs/campaign, else the published results]")
    add("--out", type=Path, default=Path("report"), help="the folder to write to [report]")
    add("--threads", type=int, help="CPU threads where a model has to run [torch's choice]")
    add("--quiet", action="store_true", help="no progress")
    add("--json", action="store_true", help="print verdicts, runs and files as JSON")
    args = parser.parse_args(argv)
    folders = args.campaigns or [default_folder()]
    if args.out.exists() and not args.out.is_dir():
        raise UsageError(f"--out {args.out} is a file: name a folder")
    set_threads(args.threads)
    from gfrnn.cli.progress import displays
    from gfrnn.report.build import build
    from gfrnn.report.claims import summary

    with displays(args.quiet or args.json)("report") as progress:
        report = build(folders, args.out, progress)
    if args.json:
        print(json.dumps(report.as_json(), indent=1))
        return 0
    for claim, verdicts in report.judged:
        print(f"{claim.id:>3}  {summary(verdicts).word:<13}{claim.claim}")
    for folder, why in report.evidence.left_out:
        print(f"left out: {folder}: {why}")
    print("\n".join(str(file) for file in report.files[:2]))
    return 0


def default_folder() -> Path:
    """The campaign that was begun here, else the published results of a checkout."""
    import gfrnn

    if CAMPAIGN.is_dir():
        return CAMPAIGN
    checkout = Path(gfrnn.__file__).resolve().parents[2] / PUBLISHED
    for published in (Path(PUBLISHED), checkout):
        if (published / CLAIMS).exists():
            return published
    raise UsageError(f"there is no {CAMPAIGN} here: name the folders with the runs to report on")
