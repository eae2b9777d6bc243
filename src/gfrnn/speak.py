"""What `gfrnn eval` and `gfrnn generate` do once their options are known."""

import codecs
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gfrnn.config import Config, TextConfig
from gfrnn.errors import DataError, UsageError
from gfrnn.evaluate import score_text
from gfrnn.files import read_named
from gfrnn.generate import Sampling, stream
from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import find, read_model
from gfrnn.report.compare import side_by_side, tag_table, tags
from gfrnn.tasks import corpus
from gfrnn.training.progress import Progress

PACKAGED = "gf-lstm-enwik8"
LONGEST_PROMPT = 1 << 24
NARROWEST = 40  # columns for two texts side by side


def load_model(run: str | None) -> CharLM:
    return CharLM.from_pretrained(run or packaged())


def packaged() -> str:
    try:
        find(PACKAGED)
    except DataError as error:
        raise UsageError("name a run folder: this package came without a pretrained model") from error
    return PACKAGED


def architecture(run: str | None) -> str:
    return str(read_model(find(run or packaged()))[0].get("architecture"))


def evaluate(
    run: str | None, split: str | None, data: str | None, unknown: str | None, quiet: bool, half: bool = False
) -> dict[str, Any]:
    """Score a split of the run's own text, or of another; with `half`, also by the weights stored in 16 bits."""
    started = time.monotonic()
    model = load_model(run)
    own = own_text(run)
    text = corpus.load(data) if data is not None else load_own(run, own.data)
    if unknown is None:
        unknown = "replace" if data is None and own.unknown == "replace" else "refuse"
    if split is None:
        split = "test" if text.is_enwik8 or data is None else "all"
    part = text.bytes if split == "all" else text.split(split)
    if len(part) < 2:
        raise DataError(f"{text.name}: {len(part)} characters are too few to score")
    replaced = model.vocabulary.count_unknown(part) if unknown == "replace" else 0
    name = f"{text.name} ({split})" if split != "all" else text.name
    ids = model.vocabulary.encode(part, name, unknown)
    with Progress("eval", quiet) as progress:
        score = score_text(model, ids, tick=lambda done: progress.show_if_due(done, f"{len(ids):,} characters"))
    report = {"text": text.name, "split": split, "bpc": score.bpc, "nats": score.nats, "characters": score.characters}
    if half:
        with Progress("eval, 16-bit weights", quiet) as progress:
            tick = lambda done: progress.show_if_due(done, f"{len(ids):,} characters")  # noqa: E731
            report["bpc_half"] = score_text(model.as_half(), ids, tick=tick).bpc
    if unknown == "replace":
        report["unknown_replaced"] = replaced
    report["seconds"] = round(time.monotonic() - started, 2)
    if text.is_enwik8 and split == "test" and run is not None:
        report |= paper_number(run)
    if text.fallback:
        print(corpus.EXCERPT_NOTE, file=sys.stderr)
    if text.name == corpus.EXCERPT_NAME and run is None:
        print("this model has read the excerpt in its training: the number says little", file=sys.stderr)
    return report


def own_text(run: str | None) -> TextConfig:
    """How a run was told to read its text: the defaults if `run` is no run folder."""
    if run is None or not (Path(run) / "config.yaml").exists():
        return TextConfig()
    options = Config.load(Path(run) / "config.yaml").data
    return options if isinstance(options, TextConfig) else TextConfig()


def load_own(run: str | None, path: str | None) -> corpus.Corpus:
    try:
        return corpus.load(path)
    except DataError as error:
        if path is None:
            raise
        raise DataError(f"{error} ({run} was trained on it: --data names another text)") from error


def paper_number(run: str) -> dict[str, Any]:
    """What the paper reports for the recipe a model was trained by, if it does."""
    from gfrnn.recipes import load

    recipe = load().get(str(read_model(find(run))[0].get("training", {}).get("recipe")))
    return {} if recipe is None or recipe.paper is None else {"paper_bpc": recipe.paper}


def prompt_bytes(prompt: str | None, prompt_file: str | None) -> bytes:
    if prompt is not None and prompt_file is not None:
        raise UsageError("give --prompt or --prompt-file, not both")
    if prompt_file is not None:
        content = read_named(prompt_file, LONGEST_PROMPT + 1)
        if len(content) > LONGEST_PROMPT:
            raise DataError(f"{prompt_file} has more than the {LONGEST_PROMPT:,} bytes that a prompt may have")
        if not content:
            raise UsageError(f"{prompt_file} is empty: a prompt needs at least one character")
        return content
    return os.fsencode("<page>\n" if prompt is None else prompt)


def generate(
    run: str | None,
    prompt: bytes,
    chars: int,
    sampling: Sampling,
    samples: int = 1,
    compare: str | None = None,
    unknown: str = "refuse",
    as_json: bool = False,
    half: bool = False,
) -> None:
    """Print continuations: as they come, several after one another, or two models' side by side."""
    if compare is not None:
        compare_models(run, compare, prompt, chars, sampling, unknown, as_json, half)
        return
    model = load_model(run)
    drawn = stream(model, prompt, chars, sampling, samples, unknown, half)
    replaced = report_replaced(model, prompt)
    if samples == 1 and not as_json:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        sys.stdout.write(decoder.decode(prompt))
        for (byte,) in drawn:
            sys.stdout.write(decoder.decode(byte))
            sys.stdout.flush()
        print(decoder.decode(b"", final=True))
        return
    texts = [b"".join(column).decode("utf-8", "replace") for column in zip(*drawn, strict=True)] or [""] * samples
    if as_json:
        shown = prompt.decode("utf-8", "replace")
        extra = {"unknown_replaced": replaced} if unknown == "replace" else {}
        print(json.dumps([{"prompt": shown, "text": text, "tags": tags(shown + text), **extra} for text in texts]))
        return
    for number, text in enumerate(texts, start=1):
        print(f"--- sample {number}\n{prompt.decode('utf-8', 'replace')}{text}")


def report_replaced(model: CharLM, prompt: bytes) -> int:
    """How many bytes of the prompt the model reads as '?'; it is said, too."""
    count = model.vocabulary.count_unknown(np.frombuffer(prompt, dtype=np.uint8))
    if count:
        print(f"{count} bytes of the prompt are outside the vocabulary and read as '?'", file=sys.stderr)
    return count


def compare_models(
    run: str | None,
    other: str,
    prompt: bytes,
    chars: int,
    sampling: Sampling,
    unknown: str,
    as_json: bool,
    half: bool = False,
) -> None:
    names = (Path(run or packaged()).name or str(run), Path(other).name or other)
    if sampling.seed is None:  # the same luck for both
        sampling = Sampling(
            sampling.temperature, sampling.top_k, sampling.top_p, int(np.random.default_rng().integers(2**32))
        )
    shown = prompt.decode("utf-8", "replace")
    texts = []
    for name in (run, other):
        model = load_model(name)
        drawn = stream(model, prompt, chars, sampling, unknown=unknown, half=half)
        report_replaced(model, prompt)
        texts.append(b"".join(byte for (byte,) in drawn).decode("utf-8", "replace"))
    both = (texts[0], texts[1])
    whole = (shown + texts[0], shown + texts[1])
    if as_json:
        print(
            json.dumps(
                [
                    {"run": n, "prompt": shown, "text": t, "tags": tags(shown + t)}
                    for n, t in zip(names, both, strict=True)
                ]
            )
        )
        return
    width = max(shutil.get_terminal_size((100, 24)).columns, NARROWEST)
    print(f"{shown}\n")
    print(side_by_side(names, both, width))
    print(f"\n{tag_table(names, whole)}")
