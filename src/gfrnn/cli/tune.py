"""`gfrnn tune LIST [NAME ...]`: every recipe of a list with every setting of it, and which is best."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfrnn.campaign.trials import check_models, read
from gfrnn.cli.options import Namespace, Parser
from gfrnn.cli.reproduce import check_folder, raise_losses, shared_out, train
from gfrnn.cli.train import lasting
from gfrnn.errors import UsageError

if TYPE_CHECKING:
    from gfrnn.campaign.runs import RunState


def main(argv: list[str]) -> int:
    args = parse(argv)
    search = read(args.trials, args.names, {} if args.data is None else {"data": lasting(args.data)})
    threads = shared_out(args.jobs, args.threads)
    check_folder(args.out)
    if args.table is not None and not args.table.absolute().parent.is_dir():
        raise UsageError(f"--table {args.table}: {args.table.parent} is no folder")
    from gfrnn.training.signals import leaving_at_once

    with leaving_at_once():  # the import of torch takes seconds, and so does a probe
        from gfrnn.campaign.estimate import text_of
        from gfrnn.campaign.runs import look
        from gfrnn.cli import campaign_table
        from gfrnn.report import tuning
        from gfrnn.storage.files import replace_file

        check_models(search.trials)
        text_sha256, notes = text_of(search.trials)
        for note in notes:
            print(note, file=sys.stderr)

        def states() -> dict[str, RunState]:
            return {trial.name: look(args.out, trial, text_sha256) for trial in search.trials}

        before = states()
        todo = [trial for trial in search.trials if before[trial.name].state not in ("finished", "diverged")]
        if args.list:
            for trial in todo:
                state = before[trial.name]
                if state.state == "foreign":
                    print(f"left out: {state.why}", file=sys.stderr)
                else:
                    print(trial.line(args.out))
            return 0
        table = campaign_table.make(args.out, search.trials, list(before.values()), args.jobs, threads)
    campaign = None
    if todo and not args.quiet and not args.json:
        print("\n".join([*table.lines(), ""]), flush=True)
    if todo and not args.dry_run:
        campaign = train(args, list(search.trials), threads, text_sha256, table)
    found = tuning.cells(search, states())
    if args.table is not None:
        replace_file(args.table, tuning.markdown_of(search, found).encode())
    if args.json:
        runs: dict[str, Any] = table.as_json() if args.dry_run else {"folder": str(args.out)}
        print(json.dumps({**runs, "cells": [cell.as_json() for cell in found]}, indent=1))
    else:
        print("\n".join(tuning.lines_of(search, found)))
    if campaign is not None:
        raise_losses(campaign)
    return 0


def parse(argv: list[str]) -> Namespace:
    about = (
        "Train every recipe of LIST, a YAML file, with every setting and seed that it has, each run in a folder of its "
        "own in --out, and show which setting is best for which recipe, by bits per character of the whole validation "
        "split. The same command again goes on with whatever is not finished; docs/recipe.md has the format."
    )
    parser = Parser(prog="gfrnn tune", description=about)
    add = parser.add_argument
    add("trials", metavar="LIST", type=Path, help="what to try, like results/recipe/learning-rates.yaml")
    about = "only these recipes of the list, as it names them [all]"
    add("names", nargs="*", metavar="NAME", type=str, default=[], help=about)
    add("--out", type=Path, help="the folder of the runs [runs/ and the list's name]")
    add("--table", type=Path, metavar="FILE", help="write the table there too, as Markdown")
    add("--jobs", type=int, default=1, help="runs at a time [1]")
    add("--threads", type=int, help="CPU threads, shared out among the jobs [all cores]")
    add("--data", type=str, help="the text: a file, raw, .gz or .zip, or the word excerpt [enwik8 if found]")
    add("--dry-run", action="store_true", help="train nothing: show what is there and missing, and how long that takes")
    add("--list", action="store_true", help="print a shell command for every run that is not finished, and no more")
    add("--quiet", action="store_true", help="no progress: the table only")
    add("--json", action="store_true", help="print the table as JSON, and nothing else")
    args = parser.parse_args(argv)
    if args.list and (args.dry_run or args.json or args.table):
        raise UsageError("--list prints lines for a shell: no --dry-run, --json or --table with it")
    args.out = args.out or Path("runs") / args.trials.stem
    return args
