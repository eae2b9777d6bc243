"""`gfrnn reproduce [WHAT ...]`: the runs behind the paper's tables and figures, those that are there and the rest."""

from __future__ import annotations

import argparse
import json
import os
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gfrnn.campaign.plan import ROWS, SETTINGS, Budget, Planned, chosen, plan
from gfrnn.cli.common import available_cores
from gfrnn.cli.options import Namespace, Parser, converter
from gfrnn.cli.train import lasting
from gfrnn.errors import DataError, GfrnnError, UsageError, nearest
from gfrnn.this_python import running

if TYPE_CHECKING:
    from gfrnn.campaign.run import Campaign

OWN_OPTIONS = {"seed": "--seeds", "epochs": "--budget", "chars": "--budget", "data": "--data"}


def main(argv: list[str]) -> int:
    args = parse(argv)
    plans = plan(args.what, args.settings, args.seeds, args.budget, *options_of(args), args.rows)
    threads = shared_out(args.jobs, args.threads)
    with_sizes = "table1" in chosen(args.what)
    if not plans:
        show_sizes(args.json)
        return 0
    check_folder(args.out)
    from gfrnn.training.signals import leaving_at_once

    with leaving_at_once():  # the import of torch takes seconds, and so does a probe
        from gfrnn.campaign.estimate import text_of
        from gfrnn.campaign.runs import look
        from gfrnn.cli import campaign_table

        text_sha256, notes = text_of(plans)
        for note in notes:
            print(note, file=sys.stderr)
        states = [look(args.out, planned, text_sha256) for planned in plans]
        if args.list:
            for planned, state in zip(plans, states, strict=True):
                if state.state == "foreign":
                    print(f"left out: {state.why}", file=sys.stderr)
                elif state.state != "finished":
                    print(planned.line(args.out))
            return 0
        table = campaign_table.make(args.out, plans, states, args.jobs, threads)
    if args.dry_run and args.json:
        print(json.dumps(table.as_json(), indent=1))
    elif not args.quiet and not args.json:
        if with_sizes:
            show_sizes(False)
            print()
        print("\n".join(table.lines()), flush=True)
    if args.dry_run:
        return 0
    from gfrnn.storage.files import make_output

    make_output(args.out)
    campaign = train(args, plans, threads, text_sha256, table)
    return report(campaign, args)


def parse(argv: list[str]) -> Namespace:
    about = (
        "Train the runs that tables and figures of the paper need, each in a folder of its own in --out, and evaluate "
        "them. The same command again goes on with whatever is not finished."
    )
    parser = Parser(prog="gfrnn reproduce", description=about)
    add = parser.add_argument
    add("what", nargs="*", metavar="WHAT", type=str, help=f"{', '.join(ROWS)} or all [all but table3, which is weeks]")
    add("--settings", type=Literal[SETTINGS], default="modern", help="recipes: small minibatches, or the paper's own")
    add("--budget", type=str, help="of each run, like '1 epoch' or 10M characters [the recipe's]")
    add("--seeds", nargs="+", type=int, default=[1], metavar="SEED", help="every row once with each [1]")
    add(
        "--rows",
        nargs="+",
        type=str,
        default=[],
        metavar="ROW",
        help="only these of WHAT, or a unit's: gated-lstm, gru [all]",
    )
    add("--out", type=Path, default=Path("runs/campaign"), help="the campaign's folder [runs/campaign]")
    add("--jobs", type=int, default=1, help="runs at a time [1]")
    add("--threads", type=int, help="CPU threads, shared out among the jobs [all cores]")
    add("--data", type=str, help="the text: a file, raw, .gz or .zip, or the word excerpt [enwik8 if found]")
    about = "of gfrnn train, for every run; WHO:KEY=VALUE for those of a unit or row, as gru:learning_rate=4e-3"
    add("--option", action="append", default=[], type=str, metavar="KEY=VALUE", help=about)
    add("--dry-run", action="store_true", help="show what is there, running and missing, and how long that takes")
    add("--list", action="store_true", help="print a shell command for every run that is not finished, and no more")
    add("--quiet", action="store_true", help="no table and no progress")
    add("--json", action="store_true", help="print JSON: the table with --dry-run, else what came of each run")
    args = parser.parse_args(argv)
    if args.list and (args.dry_run or args.json):
        raise UsageError("--list prints lines for a shell: no --dry-run or --json with it")
    args.budget = None if args.budget is None else Budget.parse(args.budget)
    return args


def options_of(args: Namespace) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """--option and --data as options of a configuration: of every run, and of those of a unit or row."""
    from gfrnn.recipes import load

    sections = [section for recipe in load().values() for section in recipe.config.sections.values()]
    hints = {name: hint for kind in {type(s) for s in sections} for name, hint in typing.get_type_hints(kind).items()}
    found: dict[str, dict[str, Any]] = {"": {} if args.data is None else {"data": lasting(args.data)}}
    for pair in args.option:
        name, equals, text = pair.partition("=")
        who, _, name = name.rpartition(":")
        key = name.strip().lstrip("-").replace("-", "_")
        if not equals:
            raise UsageError(f"--option is KEY=VALUE, like --option keep=1, not '{pair}'")
        if key in OWN_OPTIONS:
            raise UsageError(f"--option {key}: {OWN_OPTIONS[key]} says that")
        if key not in hints:
            raise UsageError(f"--option: gfrnn train has no option '{key}'{nearest(key, hints)}")
        options = found.setdefault(who.strip(), {})
        if key in options:
            raise UsageError(f"--option {who}{':' * bool(who)}{key} is given twice")
        try:
            options[key] = converter(hints[key])(text)
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--option {key}: {error}") from error
    return found.pop(""), found


def shared_out(jobs: int, threads: int | None) -> int:
    """Threads of each job."""
    cores = available_cores()
    if jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {jobs}")
    if jobs > cores:
        raise UsageError(f"--jobs {jobs} is more than the {cores} cores there are: they would only wait for each other")
    if threads is not None and threads < jobs:
        raise UsageError(f"--threads {threads} are too few for --jobs {jobs}: each needs one")
    if threads is not None and threads > cores:
        raise UsageError(f"--threads {threads} are more than the {cores} cores there are")
    if threads is None and os.environ.get("OMP_NUM_THREADS", "").isdecimal():
        return max(1, min(int(os.environ["OMP_NUM_THREADS"]), cores // jobs))
    return (threads or cores) // jobs


def check_folder(folder: Path) -> None:
    """Raise unless runs can be made there."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"--out {folder}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"--out {folder}: {there} cannot be written to")


def show_sizes(as_json: bool) -> None:
    """Table 1: sizes as the paper prints them, and what they come to in parameters."""
    from gfrnn.recipes.hutter import sizes

    rows = sizes()
    if as_json:
        print(json.dumps({"table1": rows}, indent=1))
        return
    print(f"{'Table 1':<18}{'unit':<7}{'the paper':>10}{'ours':>10}{'parameters':>13}")
    for row in rows:
        print(f"{row['row']:<18}{row['unit']:<7}{row['paper'] or '-':>10}{row['ours']:>10}{row['parameters']:>13,}")


def train(args: Namespace, plans: list[Planned], threads: int, text_sha256: str | None, table: Any) -> Campaign:
    from gfrnn.campaign.run import Campaign
    from gfrnn.cli.campaign_table import Display
    from gfrnn.cli.progress import Bar

    command = [*running("gfrnn.cli.child"), str(os.getpid())]
    with Bar("campaign", args.quiet or args.json) as bar:
        display = Display(bar, table.left())
        campaign = Campaign(args.out, plans, command, args.jobs, threads, text_sha256, display)
        campaign.run()
    return campaign


def report(campaign: Campaign, args: Namespace) -> int:
    """What came of it, as the last line and as the exit code."""
    if args.json:
        kinds = {"finished": campaign.finished, "failed": campaign.failed, "foreign": campaign.foreign}
        print(json.dumps({"folder": str(args.out), **kinds, "elsewhere": campaign.left}, indent=1))
    raise_losses(campaign)
    if not args.quiet and not args.json:
        others = f"; {len(campaign.left)} left to the process that is at work on it" if campaign.left else ""
        print(f"{so_far(campaign)}{others}: {args.out}")
    return 0


def so_far(campaign: Campaign) -> str:
    return f"{len(campaign.finished)} of {len(campaign.plans)} runs are finished"


def raise_losses(campaign: Campaign) -> None:
    """What stands for runs that failed or were left out, if any."""
    if campaign.full:
        raise DataError(f"{campaign.full}; {so_far(campaign)}, the same command continues")
    if campaign.failed or campaign.foreign:
        lost = [f"{len(campaign.failed)} failed ({', '.join(campaign.failed)})"] if campaign.failed else []
        lost += [f"{len(campaign.foreign)} left out ({'; '.join(campaign.foreign.values())})"] * bool(campaign.foreign)
        raise GfrnnError(f"{so_far(campaign)}, {' and '.join(lost)}")
