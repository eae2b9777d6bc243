"""`gfrnn eval RUN`: bits per character of a text model, grid accuracies of a program model."""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gfrnn.cli.common import (
    add_device,
    add_precision,
    architecture,
    load_model,
    packaged,
    precision_of,
    print_report,
    set_threads,
)
from gfrnn.cli.options import Namespace, Parser
from gfrnn.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from gfrnn.models import CharLM
    from gfrnn.tasks.text.config import TextConfig
    from gfrnn.tasks.text.corpus import Corpus
    from gfrnn.tasks.text.score import Score


def main(argv: list[str]) -> int:
    from gfrnn.cli import dynamic

    parser = Parser(
        prog="gfrnn eval", description="Bits per character of a text model; grid accuracies of a program model."
    )
    parser.add_argument("run", nargs="?", type=str, help="run or model folder [the model in the package]")
    parser.add_argument(
        "--split",
        type=Literal["train", "valid", "test", "all"],
        help="[test; all of a text that the model was not trained on]",
    )
    parser.add_argument("--data", type=str, help="another text: raw, .gz or .zip")
    parser.add_argument(
        "--unknown",
        type=Literal["refuse", "replace"],
        help="bytes the model lacks [refuse; of its own text: as trained]",
    )
    parser.add_argument("--limit", type=int, help="only the first so many characters of what is scored")
    parser.add_argument("--half", action="store_true", help="also the BPC of weights stored in 16 bits")
    parser.add_argument("--quick", action="store_true", help="programs: fewer per cell")
    parser.add_argument("--threads", type=int, help="CPU threads [torch's choice]")
    add_device(parser)
    add_precision(parser, "that of its training")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print JSON")
    dynamic.add_options(parser)
    args = parser.parse_args(argv)
    dynamic.check(args)
    set_threads(args.threads)
    if args.run is not None and show_kept(args):
        return 0
    if architecture(args.run) == "Seq2Seq":
        refuse_text_options(args)
        return evaluate_programs(args.run, args.quick, args.json, args.quiet, args.device, args.precision)
    if args.quick:
        raise UsageError("--quick is for program models: a text is scored as a whole (--split, --data)")
    if args.dynamic:
        dynamic.run(args)
        return 0
    quiet = args.quiet or args.json
    how = {"half": args.half, "device": args.device, "precision": args.precision, "limit": args.limit}
    report = evaluate(args.run, args.split, args.data, args.unknown, quiet, **how)
    print_report(report, args.json)
    return 0


def refuse_text_options(args: Namespace) -> None:
    if args.split or args.data or args.half or args.unknown or args.limit or args.dynamic:
        options = "--split, --data, --unknown, --limit, --half or --dynamic"
        raise UsageError(f"{args.run} is a program model: its grid is evaluated, not {options}")


def show_kept(args: Namespace) -> bool:
    """Of a run without weights: the report that lies in its folder, if one does."""
    from gfrnn.cli.kept import kept_grid, kept_validation, without_weights

    if not without_weights(Path(args.run)):
        return False
    grid = kept_grid(Path(args.run), args.quick)
    if grid is not None:
        refuse_text_options(args)
        say(f"{args.run} holds no weights: the accuracies are those kept in its {grid['kept']}")
        print_grid(grid, args.json)
        return True
    split = [f"--split {args.split}"] if args.split not in (None, "valid") else []
    options = ("data", "unknown", "limit", "half", "quick", "dynamic")
    report = kept_validation(Path(args.run), split + [f"--{name}" for name in options if getattr(args, name)])
    if report is not None:
        say(f"{args.run} holds no weights: these are the best model's numbers in its log, of the validation split")
        print_report(report, args.json)
    return report is not None


@dataclass(frozen=True)
class Scored:
    """A model and what it is to be scored on."""

    model: "CharLM"
    text: "Corpus"
    split: str
    ids: "np.ndarray"
    unknown: str  # what becomes of bytes the model lacks
    about: dict[str, Any]  # of the report: bytes replaced, whether the model has read them


def prepare(
    run: str | None, split: str | None, data: str | None, unknown: str | None, device: str, limit: int | None = None
) -> Scored:
    """Find the model, the text and the split that were asked for, and say what should be known of them."""
    from gfrnn.tasks.text import corpus

    model = load_model(run, device)
    own, trained = own_text(run), training_of(run).get("data")
    text = corpus.load(data) if data is not None else load_own(run, own.data)
    if text.fallback:
        print(corpus.EXCERPT_NOTE, file=sys.stderr)
    split, seen = choose_split(text, split, data is not None, trained, run or packaged())
    if unknown is None:
        of_its_own = data is None or seen is not None
        unknown = "replace" if of_its_own and own.unknown == "replace" else "refuse"
    part = (text.bytes if split == "all" else text.split(split))[:limit]
    if len(part) < 2:
        raise DataError(f"{text.name}: {len(part)} characters are too few to score")
    about: dict[str, Any] = {}
    if unknown == "replace":
        about["unknown_replaced"] = model.vocabulary.count_unknown(part)
    if seen is not None:
        about["read_in_training"] = seen
    name = f"{text.name} ({split})" if split != "all" else text.name
    return Scored(model, text, split, model.vocabulary.encode(part, name, unknown), unknown, about)


def evaluate(
    run: str | None,
    split: str | None,
    data: str | None,
    unknown: str | None,
    quiet: bool,
    half: bool = False,
    device: str = "cpu",
    precision: str | None = None,
    limit: int | None = None,
) -> dict[str, Any]:
    """Score a split of the run's own text, or of another; with `half`, also by the weights stored in 16 bits."""
    from gfrnn.cli.progress import Bar
    from gfrnn.models.precision import precisely, trained_in
    from gfrnn.tasks.text.score import score_text

    started = time.monotonic()
    found = prepare(run, split, data, unknown, device, limit)
    model, text, ids, split = found.model, found.text, found.ids, found.split
    products = precision_of(precision, run, device, model)
    with Bar("eval", quiet) as progress, precisely(products, model):
        score = score_text(model, ids, tick=lambda done: progress.show_if_due(done, f"{len(ids):,} characters"))
    report = {"text": text.name, "split": split, "bpc": score.bpc, "nats": score.nats, "characters": score.characters}
    if precision is not None or products != "float32":
        report["precision"] = products
    whole_and_own = run is not None and data is None and split != "all" and limit is None
    if run is not None and whole_and_own and products == trained_in(run):
        keep_blocks(Path(run), text, split, score)
    if half:
        with Bar("eval, 16-bit weights", quiet) as progress, precisely(products, model):
            tick = lambda done: progress.show_if_due(done, f"{len(ids):,} characters")  # noqa: E731
            report["bpc_half"] = score_text(model.as_half(), ids, tick=tick).bpc
    report |= found.about
    report["seconds"] = round(time.monotonic() - started, 2)
    if text.is_enwik8 and split == "test" and limit is None:
        report |= paper_number(run)
    return report


def keep_blocks(run: Path, text: "Corpus", split: str, score: "Score", settings: dict[str, Any] | None = None) -> None:
    """What every block of a run's own text cost, beside its model; with `settings`: in a dynamic evaluation."""
    from gfrnn.models.pretrained import find
    from gfrnn.progress import LOG
    from gfrnn.storage.files import sha256_of
    from gfrnn.storage.run_folder import CONFIG, MODEL, file_in
    from gfrnn.tasks.text import blocks

    if not (run / CONFIG).exists():
        return
    origin = blocks.Origin(text.sha256, split, score.characters, sha256_of(file_in(find(run), MODEL)))
    if settings is not None:
        origin = blocks.DynamicOrigin(**asdict(origin), settings=json.dumps(settings))
    try:
        blocks.keep(run, origin, score)
    except OSError as error:
        LOG.warning(f"gfrnn: the cost of every block could not be kept in {run}: {error.strerror}")


def choose_split(text: "Corpus", asked: str | None, named: bool, trained: Any, model: str) -> tuple[str, bool | None]:
    """What is scored, and whether the model has read that in its training, where its config.json tells; it is said.

    `named`: the text was named on the command line; `trained`: size and checksum of the text the model has learnt.
    """
    from gfrnn.tasks.text import corpus

    known = trained if isinstance(trained, dict) and trained.get("sha256") else None
    same = known is not None and known.get("bytes") == len(text.bytes) and known["sha256"] == text.sha256
    split = asked or ("test" if text.is_enwik8 or same or not named else "all")
    if same:
        seen = split in ("train", "all")
        if seen:
            say(f"{model} was trained on {text.name}: it has read what is scored here, so the number is no test of it")
        elif asked is None and named:
            say(f"{model} was trained on {text.name}: its test split is scored, which was kept back (--split all: all)")
        return split, seen
    if known is not None and known["sha256"] == corpus.ENWIK8_SHA256 and text.name == corpus.EXCERPT_NAME:
        say("this model has read the excerpt in its training: the number says little")
        return split, True
    if known is not None and not named and model != packaged():
        say(f"{text.name} is not the text that {model} was trained on (its sha256 was {known['sha256'][:16]}...)")
    return split, None


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def own_text(run: str | None) -> "TextConfig":
    """How a run was told to read its text: the defaults if `run` is no run folder."""
    from gfrnn.storage.run_folder import CONFIG
    from gfrnn.tasks.text.config import TextConfig
    from gfrnn.training.config import Config

    if run is None or not (Path(run) / CONFIG).exists():
        return TextConfig()
    options = Config.load(Path(run) / CONFIG).data
    return options if isinstance(options, TextConfig) else TextConfig()


def load_own(run: str | None, path: str | None) -> "Corpus":
    from gfrnn.tasks.text import corpus

    try:
        return corpus.load(path)
    except DataError as error:
        if path is None:
            raise
        raise DataError(f"{error} ({run} was trained on it: --data names another text)") from error


def training_of(run: str | None) -> dict[str, Any]:
    """How a model was trained, as its config.json has it; nothing, if it does not."""
    from gfrnn.models.pretrained import find, read_config

    training = read_config(find(run or packaged())).get("training")
    return training if isinstance(training, dict) else {}


def paper_number(run: str | None) -> dict[str, Any]:
    """What the paper reports for the recipe a model was trained by, if it does, and from the start."""
    from gfrnn.recipes import load

    training = training_of(run)
    recipe = load().get(str(training.get("recipe")))
    return {} if recipe is None or recipe.paper is None or "init" in training else {"paper_bpc": recipe.paper}


def evaluate_programs(
    run: str, quick: bool, as_json: bool, quiet: bool, device: str, precision: str | None = None
) -> int:
    from gfrnn.cli.progress import displays
    from gfrnn.tasks.programs.grid import grid_of

    shown, chosen = displays(quiet or as_json), precision_of(precision, run, device)
    report = grid_of(run, quick=quick, progress=shown, again=True, device=device, precision=chosen)
    print_grid(report, as_json)
    return 0


def print_grid(report: dict[str, Any], as_json: bool) -> None:
    from gfrnn.tasks.programs.grid import COUNTS, table

    if as_json:
        report["cells"] = [{key: cell[key] for key in cell if key not in COUNTS} for cell in report["cells"]]
    print(json.dumps(report) if as_json else table(report))
