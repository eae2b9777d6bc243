"""The `gfrnn` command: finds the verb, calls its function, turns errors into sentences and exit codes.

Verbs are imported when they are called, and torch only when a verb has parsed its options: help is instant.
"""

import contextlib
import importlib
import io
import logging
import os
import select
import sys
import traceback

import gfrnn
from gfrnn.cli.memory import keep_freed_memory
from gfrnn.errors import UsageError, explain, nearest
from gfrnn.progress import LOG
from gfrnn.training.signals import ctrl_c

# verb -> (module of this package whose main takes the words after the verb and returns the exit code, a line of help)
VERBS = {
    "train": ("train", "train a recipe; the same command again continues it"),
    "launch": ("launch", "train in several processes of this machine: launch -n 2 train RECIPE"),
    "eval": ("evaluate", "bits per character (or accuracy) of a trained model"),
    "generate": ("generate", "continue a text, byte by byte"),
    "recipes": ("recipes", "what can be trained, with the paper's numbers"),
    "data": ("data", "find, check or download enwik8"),
    "reproduce": ("reproduce", "train every run that a table or figure of the paper needs, or go on with them"),
    "tune": ("tune", "the same small search for settings, for every recipe of a list"),
    "report": ("report", "every table and figure of the paper beside ours, and a verdict for each of its claims"),
    "plot": ("plot", "learning curves of runs; heat maps of program models"),
    "demo": ("demo", "two models learn side by side on real text, in four minutes"),
    "programs": ("programs", "generate the programs of the second task"),
    "run-program": ("run_program", "ask a trained model what a program prints"),
    "explore": ("explore", "one HTML page in which a model runs, and its gates can be touched"),
    "export": ("export", "a text model for other runtimes: ONNX, torch.export, Hugging Face"),
    "bench": ("bench", "measure speed on this machine"),
    "doctor": ("doctor", "versions, CPU, and which backends can run"),
    "completion": ("completion", "what makes a shell complete gfrnn's verbs, options and recipes"),
}


class Aloud(logging.Handler):
    """What the floors below have to say goes to standard error, whatever that is at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code (see `gfrnn.errors`)."""
    with contextlib.ExitStack() as stack:
        if sys.stdout is None:  # closed, as by `gfrnn ... >&-`
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        if sys.stderr is None:
            stack.enter_context(contextlib.redirect_stderr(stack.enter_context(open(os.devnull, "w"))))
        return answer(list(sys.argv[1:] if argv is None else argv))


def answer(words: list[str]) -> int:
    """Run one command line; whatever goes wrong becomes a sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a model may say anything; a narrow terminal shows '?' for it
            stream.reconfigure(errors="replace")
    if not any(isinstance(handler, Aloud) for handler in LOG.handlers):
        LOG.addHandler(Aloud())
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with ctrl_c():
            code = run(words)
        sys.stdout.flush()
        return code
    except SystemExit as leaving:  # argparse's way out after --help, and rich's when nobody reads on
        broken = isinstance(leaving.__context__, BrokenPipeError)
        return leaving.code if isinstance(leaving.code, int) and not broken else 0
    except KeyboardInterrupt as interrupt:
        return complain(*explain(interrupt))
    except Exception as error:
        if isinstance(error, BrokenPipeError) and nobody_reads():  # `gfrnn ... | head`, which is fine
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if debug:
            traceback.print_exc()
        sentence, code = explain(error)
        # Of the processes that train together one speaks for all.
        return code if getattr(error, "said_elsewhere", False) else complain(sentence, code)


def run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else UsageError.exit_code
    if words[0] == "--version":
        print(gfrnn.__version__)
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        raise UsageError(f"unknown command '{verb}'{nearest(verb, VERBS)} (gfrnn --help lists them)")
    if verb in ("train", "eval", "reproduce", "tune", "demo", "bench"):
        keep_freed_memory()
    code: int = importlib.import_module(f"gfrnn.cli.{VERBS[verb][0]}").main(rest)
    return code


def usage() -> str:
    lines = ["usage: gfrnn VERB [options]      (gfrnn VERB --help shows a verb's options)", ""]
    lines += [f"  {verb:<13}{help}" for verb, (_, help) in VERBS.items()]
    return "\n".join([*lines, "", "  --debug shows the traceback of an error; --version prints the version"])


def nobody_reads() -> bool:
    """Whether standard output is a pipe that was closed at its other end."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)  # errors are reported without being asked for
    except (AttributeError, OSError, ValueError):  # closed, or not a file of the system
        return False
    return bool(poll.poll(0))


def complain(sentence: str, code: int) -> int:
    with contextlib.suppress(BrokenPipeError):  # the exit code says it too
        print(f"gfrnn: {' '.join(sentence.split())}", file=sys.stderr, flush=True)
    return code
