"""Processes that train and are made to die.

They are forked from a server that has imported everything already, so that one costs a moment, not seconds of imports.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import run_tiny

from gfrnn import cli
from gfrnn.training.checkpoint import Checkpoints, Snapshot

HERE = Path(__file__).parent
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["harness", "warm"])
FSYNC = os.fsync  # the real one, in the server: warm.py, which is imported later, replaces it
DEFECT = 99  # exit code of a child that failed in a way no test wants


def start_server() -> None:
    """The server finds what it is to import by PYTHONPATH alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (HERE, HERE.parent))), prepend=os.pathsep)
        forkserver.ensure_running()


@contextmanager
def child(target: Callable[..., None], *args: Any) -> Iterator[ForkServerProcess]:
    """A process that runs target(*args); gone when this is left."""
    start_server()
    process = CONTEXT.Process(target=_contained, args=(target, *args))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
        process.close()


def exit_code(target: Callable[..., None], *args: Any) -> int:
    """How target(*args) ends in a process of its own (minus the signal's number when one ended it)."""
    with child(target, *args) as process:
        process.join()
        assert process.exitcode is not None
        return process.exitcode


def _contained(target: Callable[..., None], *args: Any) -> None:
    torch.set_num_threads(1)
    try:
        target(*args)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        os._exit(DEFECT)


def ask(function: Callable[..., Any], *args: Any) -> Any:
    """What function(*args) returns in a process of its own."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    with receiver, child(_answer, sender, function, *args) as process:
        sender.close()
        try:
            return receiver.recv()
        except EOFError:
            process.join()
            raise AssertionError(f"{function.__name__} ended its process with {process.exitcode}") from None


def _answer(sender: Any, function: Callable[..., Any], *args: Any) -> None:
    sender.send(function(*args))


def command(*words: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command line, in this process."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = cli.main([str(word) for word in words])
    return code, out.getvalue(), error.getvalue()


def train_and_tell(folder: Path, name: str, recipe: str, options: dict[str, Any]) -> None:
    """Train; after every commit its step is added to the file `name`.commits."""
    os.fsync = FSYNC  # kills are to hit saves, which take no time without
    real = Checkpoints.save

    def save(self: Checkpoints, snapshot: Snapshot, best_step: int | None = None) -> Path:
        path = real(self, snapshot, best_step)
        with (folder / f"{name}.commits").open("ab", buffering=0) as file:
            file.write(f"{snapshot.step}\n".encode())
        return path

    Checkpoints.save = save  # type: ignore[method-assign]
    run_tiny(folder, name, recipe, **options)


def last_commit(folder: Path, name: str) -> int:
    """The newest step whose commit was finished; -1 before the first."""
    path = folder / f"{name}.commits"
    return max(map(int, path.read_bytes().split()), default=-1) if path.exists() else -1


def whole_checkpoint(run: Path) -> int:
    """The step that would be resumed; -1 when there never was one. Nothing there may look damaged."""
    checkpoints = Checkpoints(run, report=lambda sentence: pytest.fail(sentence))
    checkpoints.sweep()
    found = checkpoints.latest()
    return -1 if found is None else found.step
