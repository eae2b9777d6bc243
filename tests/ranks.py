"""Processes that train together, forked from the fault suite's server so that each costs a moment."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from harness import CONTEXT, ask, child, command
from runs import TINY, write_text

__all__ = ["SURE", "ask", "command", "free_port", "run_command", "together", "words"]
# Dropout is drawn by each process for its own rows: without it a run is the same however many share it.
# Adam makes of the gradients' rounding, which depends on how many sum them, one of the weights as large as its rate is.
SURE: dict[str, Any] = {"dropout": 0.0, "learning_rate": 4e-3}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def together(function: Callable[..., Any], *args: Any, size: int = 2, seconds: float = 60) -> list[Any]:
    """What function(rank, *args) returns in each of `size` processes that are told of each other (None if it dies)."""
    port = free_port()
    with ExitStack() as stack:
        pipes = []
        for rank in range(size):
            receiver, sender = CONTEXT.Pipe(duplex=False)
            stack.enter_context(receiver)
            stack.enter_context(child(_as_rank, sender, rank, size, port, seconds, function, args))
            sender.close()
            pipes.append(receiver)
        return [answer(pipe) for pipe in pipes]


def answer(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None


def _as_rank(
    sender: Any, rank: int, size: int, port: int, seconds: float, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "GFRNN_TIMEOUT": str(seconds)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sender.send(function(rank, *args))


def words(folder: Path, recipe: str = "modern-gated-lstm", **options: Any) -> list[str]:
    """The command line of a tiny run."""
    options = {**TINY, **SURE, "data": write_text(folder), **options}
    del options["epochs"]
    pairs = [(f"--{key.replace('_', '-')}", str(value)) for key, value in options.items()]
    return ["train", recipe, *(word for pair in pairs for word in pair), "--quiet"]


def run_command(rank: int, lines: list[list[str]]) -> tuple[int, str]:
    """Exit code and error output of every process's own command line."""
    code, _, error = command(*lines[rank])
    return code, error
