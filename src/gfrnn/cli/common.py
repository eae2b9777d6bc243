"""What several verbs share: reports for people and programs, threads, and the model a user names."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from gfrnn.cli.options import Parser
from gfrnn.errors import DataError, UsageError
from gfrnn.names import PRECISIONS

if TYPE_CHECKING:
    from gfrnn.models import CharLM

MOST_THREADS = 256


def set_threads(threads: int | None) -> None:
    if threads is None:
        return
    if threads < 1:
        raise UsageError(f"--threads must be at least 1, got {threads}")
    if threads > MOST_THREADS:  # the library that starts them does not fail gently
        raise UsageError(f"--threads must be at most {MOST_THREADS}, got {threads}")
    import torch

    torch.set_num_threads(threads)


def available_cores() -> int:
    """Cores this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """Names and values: JSON for programs, one a line for people."""
    if as_json:
        print(json.dumps(report))
        return
    wide = max(18, *map(len, report)) + 2
    for name, value in report.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(value, float):
            shown = f"{value:.1f}" if "seconds" in name else f"{value:.4f}"
        print(f"{name.replace('_', ' '):<{wide}}{shown}")


def add_device(parser: Parser) -> None:
    parser.add_argument("--device", type=str, default="cpu", help="where the model runs: cpu, cuda, cuda:1, ... [cpu]")


def add_precision(parser: Parser, default: str) -> None:
    parser.add_argument(
        "--precision",
        type=Literal[PRECISIONS],
        help=f"of the factors of matrix products; auto: bfloat16 where the CPU has an instruction for it [{default}]",
    )


def precision_of(asked: str | None, run: str | None, device: str, model: "CharLM | None" = None) -> str:
    """What was asked for, else, on a CPU, that in which the model was trained; it is said where the two differ."""
    from gfrnn.models.precision import precisely, resolve, trained_in

    trained = trained_in(run or packaged())
    chosen = resolve(asked, device) if asked is not None else trained if device == "cpu" else "float32"
    if model is not None:
        precisely(chosen, model)  # what cannot be is refused before anything is said
    if chosen != trained:
        print(f"{run or packaged()} was trained with products in {trained}; here in {chosen}", file=sys.stderr)
    return chosen


def load_model(run: str | None, device: str = "cpu") -> "CharLM":
    from gfrnn.models import CharLM
    from gfrnn.models.device import find_device

    return CharLM.from_pretrained(run or packaged()).to(find_device(device))


def packaged() -> str:
    from gfrnn.models.pretrained import PACKAGED, find

    try:
        find(PACKAGED)
    except DataError as error:
        raise UsageError("name a run folder: this package came without a pretrained model") from error
    return PACKAGED


def architecture(run: str | None) -> str:
    from gfrnn.models.pretrained import find, read_model

    return str(read_model(find(run or packaged()))[0].get("architecture"))
