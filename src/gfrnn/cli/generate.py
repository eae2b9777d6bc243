"""`gfrnn generate RUN --prompt TEXT`: continue a text, several times, or with two models side by side."""

import codecs
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gfrnn.cli.common import add_device, add_precision, load_model, packaged, set_threads
from gfrnn.cli.options import Parser
from gfrnn.errors import DataError, UsageError
from gfrnn.report.compare import side_by_side, tag_table, tags
from gfrnn.storage.files import read_named

if TYPE_CHECKING:
    from gfrnn.models import CharLM
    from gfrnn.models.generation import Sampling

LONGEST_PROMPT = 1 << 24
NARROWEST = 40  # columns for two texts side by side


def main(argv: list[str]) -> int:
    about = "Continue a text, byte by byte. Into a file or a pipe go the bytes as they are, and no newline after them."
    parser = Parser(prog="gfrnn generate", description=about)
    parser.add_argument("run", nargs="?", type=str, help="run or model folder [the model in the package]")
    parser.add_argument("--prompt", type=str, help="the text to continue [<page>]")
    parser.add_argument("--prompt-file", type=str, help="a file with it; - reads standard input")
    parser.add_argument("--chars", type=int, default=500, help="bytes to generate [500]")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1 safer, above 1 wilder, 0 greedy [1]")
    parser.add_argument("--top-k", type=int, help="draw from the k most probable only")
    parser.add_argument("--top-p", type=float, help="draw from the most probable that sum to p only")
    parser.add_argument("--seed", type=int, help="the same seed gives the same text")
    parser.add_argument(
        "--samples",
        type=int,
        default=1,
        help="so many continuations, written at once and shown one after the other [1]",
    )
    parser.add_argument(
        "--half", action="store_true", help="read weights stored in 16 bits: faster, slightly other text"
    )
    parser.add_argument("--compare", type=str, help="another run: both continuations side by side, with their tags")
    parser.add_argument("--unknown", type=Literal["refuse", "replace"], default="refuse", help="bytes the model lacks")
    parser.add_argument("--threads", type=int, help="CPU threads [torch's choice]")
    add_device(parser)
    add_precision(parser, "float32, for which there is a fast loop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    set_threads(args.threads)
    from gfrnn.models.generation import Sampling

    if args.chars < 0 or args.samples < 1:
        raise UsageError(f"--chars is 0 or more and --samples 1 or more, not {args.chars} and {args.samples}")
    if args.compare is not None and args.samples > 1:
        raise UsageError("--compare shows one continuation of each model: leave --samples away")
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    prompt = prompt_bytes(args.prompt, args.prompt_file)
    how = {"as_json": args.json, "half": args.half, "device": args.device, "precision": args.precision}
    generate(args.run, prompt, args.chars, sampling, args.samples, args.compare, args.unknown, **how)
    return 0


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
    sampling: "Sampling",
    samples: int = 1,
    compare: str | None = None,
    unknown: str = "refuse",
    as_json: bool = False,
    half: bool = False,
    device: str = "cpu",
    precision: str | None = None,
) -> None:
    """Print continuations: as they come, several after one another, or two models' side by side."""
    from gfrnn.models.precision import precisely, resolve

    if compare is not None:
        compare_models(run, compare, prompt, chars, sampling, unknown, as_json, half, device, precision)
        return
    model = load_model(run, device)
    with precisely(resolve(precision or "float32", device), model):
        write_samples(model, prompt, chars, sampling, samples, unknown, as_json, half)


def write_samples(
    model: "CharLM",
    prompt: bytes,
    chars: int,
    sampling: "Sampling",
    samples: int,
    unknown: str,
    as_json: bool,
    half: bool,
) -> None:
    from gfrnn.models.generation import stream

    drawn = stream(model, prompt, chars, sampling, samples, unknown, half)
    replaced = report_replaced(model, prompt)
    if samples == 1 and not as_json:
        (write_text if for_the_eye() else write_bytes)(prompt, (byte for (byte,) in drawn))
        return
    columns = [b"".join(column) for column in zip(*drawn, strict=True)] or [b""] * samples
    texts = [column.decode("utf-8", "replace") for column in columns]
    if as_json:
        shown = prompt.decode("utf-8", "replace")
        extra = {"unknown_replaced": replaced} if unknown == "replace" else {}
        print(json.dumps([{"prompt": shown, "text": text, "tags": tags(shown + text), **extra} for text in texts]))
        return
    for number, column in enumerate(columns, start=1):
        write = write_text if for_the_eye() else write_bytes
        write(b"--- sample %d\n" % number + prompt, [column])
        if not for_the_eye():
            print(flush=True)


def for_the_eye() -> bool:
    """Whether what is written is text: on a terminal, and where standard output takes no bytes."""
    return sys.stdout.isatty() or not hasattr(sys.stdout, "buffer")


def write_text(prompt: bytes, drawn: Iterable[bytes]) -> None:
    """For the eye: as they come, whatever is not UTF-8 replaced, the cursor on a new line afterwards."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    sys.stdout.write(decoder.decode(prompt))
    for byte in drawn:
        sys.stdout.write(decoder.decode(byte))
        sys.stdout.flush()
    print(decoder.decode(b"", final=True))


def write_bytes(prompt: bytes, drawn: Iterable[bytes]) -> None:
    """For a file or a pipe: these bytes and nothing else."""
    sys.stdout.flush()
    out = sys.stdout.buffer
    out.write(prompt)
    for byte in drawn:
        out.write(byte)
        out.flush()
    out.flush()


def report_replaced(model: "CharLM", prompt: bytes) -> int:
    """How many bytes of the prompt the model reads as '?'; it is said, too."""
    import numpy as np

    count = model.vocabulary.count_unknown(np.frombuffer(prompt, dtype=np.uint8))
    if count:
        print(f"{count} bytes of the prompt are outside the vocabulary and read as '?'", file=sys.stderr)
    return count


def compare_models(
    run: str | None,
    other: str,
    prompt: bytes,
    chars: int,
    sampling: "Sampling",
    unknown: str,
    as_json: bool,
    half: bool = False,
    device: str = "cpu",
    precision: str | None = None,
) -> None:
    import numpy as np

    from gfrnn.models.generation import Sampling, stream
    from gfrnn.models.precision import precisely, resolve

    names = (Path(run or packaged()).name or str(run), Path(other).name or other)
    if sampling.seed is None:  # the same luck for both
        sampling = Sampling(
            sampling.temperature, sampling.top_k, sampling.top_p, int(np.random.default_rng().integers(2**32))
        )
    shown = prompt.decode("utf-8", "replace")
    texts = []
    for name in (run, other):
        model = load_model(name, device)
        with precisely(resolve(precision or "float32", device), model):
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
