"""`gfrnn eval RUN --dynamic`: bits per character of a model that goes on learning, beside those of it as it is."""

import itertools
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gfrnn.cli.common import packaged, print_report
from gfrnn.cli.options import Namespace, Parser, with_converter
from gfrnn.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from gfrnn.cli.evaluate import Scored
    from gfrnn.tasks.text.dynamic import Settings
    from gfrnn.tasks.text.score import Score

VALUES = ("rule", "learning_rate", "block", "decay")
DEFAULTS: dict[str, Any] = {"rule": "rms", "block": 50, "decay": 0.003}
GRADIENTS_FROM = 50_000  # characters of the training split that mean squared gradients are gathered over


def add_options(parser: Parser) -> None:
    group = parser.add_argument_group(
        "dynamic evaluation",
        "The model goes on learning from each block of the text after it has been scored on it (Krause et al., 2018); "
        "its files stay as they are. That is another number than that of the model as it is, shown beside it, never "
        "instead. First --choose, which tries values on the validation split and keeps the best in RUN; then "
        "--dynamic alone scores the test split with those. Values may be given instead: --learning-rate at least.",
    )
    options: dict[str, dict[str, Any]] = {
        "--dynamic": {"action": "store_true", "help": "score a model that goes on learning, and the model as it is"},
        "--choose": {
            "action": "store_true",
            "help": "try values on the first 100,000 (--limit) characters of the validation split, and keep the best",
        },
        "--rule": {
            "type": Literal["sgd", "rms"],
            "help": "plain steps, or scaled by the root of mean squared gradients over training text [rms]",
        },
        "--learning-rate": {"type": float, "help": "of every step: rms about 1e-3, sgd about 0.1"},
        "--block": {"type": int, "help": "characters scored, then learnt from [50]"},
        "--decay": {"type": float, "help": "how far each step goes back to the trained weights, 0 to 1 [0.003]"},
    }
    for name, kwargs in options.items():
        parser.known_options.append(name)
        group.add_argument(name, **with_converter(kwargs))


def check(args: Namespace) -> None:
    """Refuse options that make no sense together, before anything is loaded."""
    given = ["--choose"] * args.choose + [f"--{name.replace('_', '-')}" for name in values_given(args)]
    if given and not args.dynamic:
        raise UsageError(f"{given[0]} is for dynamic evaluation: add --dynamic")
    if args.limit is not None and args.limit < 2:
        raise UsageError(f"--limit must be at least 2, got {args.limit}")
    if not args.dynamic:
        return
    if args.half:
        raise UsageError("--half is for the model as it is: dynamic evaluation is in float32")
    if args.precision not in (None, "float32"):
        raise UsageError(f"--precision {args.precision} is for the model as it is: dynamic evaluation is in float32")
    if args.choose and args.split not in (None, "valid"):
        raise UsageError(f"values are chosen on the validation split, never on another: no --split {args.split} here")
    if given and not args.choose and args.learning_rate is None:
        raise UsageError(
            f"{given[0]} wants --learning-rate with it (or --choose, which finds one on the validation split)"
        )


def run(args: Namespace) -> None:
    """Choose values, or score with those chosen or given; print what came of it."""
    from gfrnn.cli.evaluate import prepare
    from gfrnn.tasks.text.dynamic_choice import FIRST

    settings, whence, chosen_on = (None, "", None) if args.choose else find_settings(args)
    split, limit = ("valid", args.limit or FIRST) if args.choose else (args.split, args.limit)
    found = prepare(args.run, split, args.data, args.unknown, args.device, limit)
    if chosen_on not in (None, found.text.sha256):
        say(f"the values were chosen on another text than {found.text.name}")
    say_precision(args.run)
    found.model.float()
    evaluation = Evaluation(found, args.quiet or args.json)
    report = choose(args, found, evaluation) if settings is None else score(args, found, evaluation, settings, whence)
    if not args.json:
        report = {name: f"{value:g}" if name in ("learning_rate", "decay") else value for name, value in report.items()}
        for trial in report.pop("tried", []):
            bpc = "diverged" if trial["bpc"] is None else f"{trial['bpc']:.4f}"
            print(f"  {described(trial):<52}{bpc}")
    print_report(report, args.json)


class Evaluation:
    """A model, its text, and what is measured once for all settings."""

    def __init__(self, found: "Scored", quiet: bool) -> None:
        self.found, self.quiet = found, quiet
        self.squares = cache(self.measure_squares)

    def measure_squares(self, block: int) -> "list[Tensor]":
        """Mean squared gradients over the training split of the same text."""
        from gfrnn.cli.progress import Bar
        from gfrnn.tasks.text.dynamic import mean_squares, stretches

        found = self.found
        if found.split in ("train", "all"):
            raise UsageError(
                f"the rule rms measures gradients on the training split, which is scored here (--split {found.split}): "
                "take --rule sgd"
            )
        text, vocabulary = found.text.split("train"), found.model.vocabulary
        name = f"{found.text.name} (train)"
        parts = [
            vocabulary.encode(text[place], name, found.unknown) for place in stretches(len(text), block, GRADIENTS_FROM)
        ]
        with Bar("gradients", self.quiet) as bar:
            words = f"{sum(map(len, parts)):,} training characters, blocks of {block}"
            return mean_squares(found.model, parts, block, lambda done: bar.show_if_due(done, words))

    def static(self) -> "Score":
        from gfrnn.cli.progress import Bar
        from gfrnn.tasks.text.score import score_text

        words = f"{len(self.found.ids):,} characters"
        with Bar("as trained", self.quiet) as bar:
            return score_text(self.found.model, self.found.ids, tick=lambda done: bar.show_if_due(done, words))

    def dynamic(self, settings: "Settings") -> "Score":
        from gfrnn.cli.progress import Bar
        from gfrnn.tasks.text.dynamic import score_dynamically

        squares = self.squares(settings.block) if settings.rule == "rms" else None
        words = f"{len(self.found.ids):,} characters, {described(settings.to_mapping())}"
        with Bar("dynamic", self.quiet) as bar:
            tick = lambda done: bar.show_if_due(done, words)  # noqa: E731
            return score_dynamically(self.found.model, self.found.ids, settings, squares, tick)


def values_given(args: Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in VALUES if getattr(args, name) is not None}


def find_settings(args: Namespace) -> "tuple[Settings, str, str | None]":
    """The values to score with, where they come from, and the sha256 of the text they were chosen on."""
    from gfrnn.tasks.text import dynamic_choice
    from gfrnn.tasks.text.dynamic import Settings

    if args.learning_rate is not None:
        return Settings(**{**DEFAULTS, **values_given(args)}), "given", None
    weights, others = model_sha256(args.run), None
    for folder in folders_of(args.run):
        choice = dynamic_choice.read(folder)
        if choice is not None and choice.model_sha256 == weights:
            return choice.settings, f"chosen on {choice.characters:,} validation characters", choice.text_sha256
        if choice is not None:
            others = others or folder / dynamic_choice.DYNAMIC
    if others is not None:
        raise UsageError(
            f"the values in {others} were chosen for other weights: --dynamic --choose again, or give --learning-rate"
        )
    raise UsageError(
        f"{args.run or packaged()} keeps no values for dynamic evaluation: `gfrnn eval {args.run or packaged()} "
        "--dynamic --choose` finds some on the validation split, or give --learning-rate"
    )


def choose(args: Namespace, found: "Scored", evaluation: Evaluation) -> dict[str, Any]:
    from gfrnn.tasks.text import dynamic_choice

    static = evaluation.static()
    started = time.monotonic()
    tried = dynamic_choice.search(lambda settings: evaluation.dynamic(settings).bpc, values_given(args))
    choice = dynamic_choice.Choice(found.text.sha256, model_sha256(args.run), len(found.ids), static.bpc, tried)
    best, kept = choice.best, None
    try:
        kept = str(dynamic_choice.keep(folders_of(args.run)[0], choice))
    except OSError as error:  # what was found is worth minutes: it is shown all the same
        say(f"the values could not be kept in {folders_of(args.run)[0]} ({error.strerror}): give them as options")
    return {
        "text": found.text.name,
        "split": found.split,
        "characters": len(found.ids),
        **found.about,
        "tried": tried,
        **{name: best[name] for name in VALUES},
        "bpc": static.bpc,
        "bpc_dynamic": best["bpc"],
        "gain": static.bpc - best["bpc"],
        "kept": kept,
        "seconds": round(time.monotonic() - started, 2),
    }


def score(
    args: Namespace, found: "Scored", evaluation: Evaluation, settings: "Settings", whence: str
) -> dict[str, Any]:
    from gfrnn.cli.evaluate import keep_blocks

    clocks = [time.monotonic()]
    static = evaluation.static()
    clocks.append(time.monotonic())
    if settings.rule == "rms":
        evaluation.squares(settings.block)
    clocks.append(time.monotonic())
    dynamic = evaluation.dynamic(settings)
    clocks.append(time.monotonic())
    if args.run is not None and args.data is None and found.split != "all" and args.limit is None:
        keep_blocks(Path(args.run), found.text, found.split, dynamic, settings.to_mapping())
    static_seconds, gradient_seconds, seconds = (after - before for before, after in itertools.pairwise(clocks))
    return {
        "text": found.text.name,
        "split": found.split,
        "characters": len(found.ids),
        **found.about,
        "bpc": static.bpc,
        "bpc_dynamic": dynamic.bpc,
        "gain": static.bpc - dynamic.bpc,
        **settings.to_mapping(),
        "values": whence,
        "seconds_static": round(static_seconds, 2),
        "seconds_gradients": round(gradient_seconds, 2),
        "seconds_dynamic": round(seconds, 2),
        "times_static": round(seconds / max(static_seconds, 1e-9), 1),
    }


def described(settings: dict[str, Any]) -> str:
    """
    >>> described({"rule": "rms", "learning_rate": 1e-3, "block": 50, "decay": 0.0})
    'rms, learning rate 0.001, block 50, decay 0'
    """
    rate, decay = settings["learning_rate"], settings["decay"]
    return f"{settings['rule']}, learning rate {rate:g}, block {settings['block']}, decay {decay:g}"


def folders_of(run: str | None) -> list[Path]:
    """Where values for a run or a model folder are: in it; for a model in the package: in the cache folder, where they
    are kept, or beside the model."""
    from gfrnn.models.pretrained import find
    from gfrnn.storage.cache import cache_folder

    if run is not None and Path(run).is_dir():
        return [Path(run)]
    return [cache_folder() / "dynamic" / (run or packaged()), find(run or packaged())]


def model_sha256(run: str | None) -> str:
    from gfrnn.models.pretrained import find
    from gfrnn.storage.files import sha256_of
    from gfrnn.storage.run_folder import MODEL, file_in

    return sha256_of(file_in(find(run or packaged()), MODEL))


def say_precision(run: str | None) -> None:
    """Weights that are stored in another precision are converted, and that is said."""
    from gfrnn.models.pretrained import find, read_model

    kinds = {str(tensor.dtype).removeprefix("torch.") for tensor in read_model(find(run or packaged()))[1].values()}
    other = kinds - {"float32"}
    if other:
        say(f"the weights are stored as {' and '.join(sorted(other))}: a float32 copy of them learns")


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
