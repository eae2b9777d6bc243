"""The `gfrnn` command: finds the verb, calls its function, turns errors into sentences and exit codes.

Verbs are imported when they are called, and torch only when a verb has parsed its options: help is instant.
"""

import importlib
import io
import os
import sys
import traceback

from gfrnn.errors import UsageError, explain, nearest
from gfrnn.memory import keep_freed_memory

# verb -> (module:function taking the words after the verb and returning the exit code, one line of help)
VERBS = {
    "train": ("gfrnn.commands:train", "train a recipe; the same command again continues it"),
    "launch": ("gfrnn.launch:main", "train in several processes of this machine: launch -n 2 train RECIPE"),
    "eval": ("gfrnn.commands:evaluate", "bits per character (or accuracy) of a trained model"),
    "generate": ("gfrnn.commands:generate", "continue a text, byte by byte"),
    "recipes": ("gfrnn.commands:recipes", "what can be trained, with the paper's numbers"),
    "data": ("gfrnn.commands:data", "find, check or download enwik8"),
    "plot": ("gfrnn.commands:plot", "learning curves of runs; heat maps of program models"),
    "demo": ("gfrnn.demo:main", "two models learn side by side on real text, in four minutes"),
    "programs": ("gfrnn.tasks.programs:main", "generate the programs of the second task"),
    "run-program": ("gfrnn.run_program:main", "ask a trained model what a program prints"),
    "bench": ("gfrnn.bench:main", "measure speed on this machine"),
    "doctor": ("gfrnn.commands:doctor", "versions, CPU, and which backends can run"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code (see `gfrnn.errors`)."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a model may say anything; a narrow terminal shows '?' for it
            stream.reconfigure(errors="replace")
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        return run(words)
    except SystemExit as leaving:  # argparse's way out after --help
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt as interrupt:
        return complain(*explain(interrupt))
    except BrokenPipeError:  # `gfrnn ... | head`: nobody reads on, which is fine
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        sentence, code = explain(error)
        # Of the processes that train together one speaks for all.
        return code if getattr(error, "said_elsewhere", False) else complain(sentence, code)


def run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] == "--version":
        from importlib.metadata import version

        print(version("gfrnn"))
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        raise UsageError(f"unknown command '{verb}'{nearest(verb, VERBS)} (gfrnn --help lists them)")
    if verb in ("train", "eval", "demo", "bench"):
        keep_freed_memory()
    module, function = VERBS[verb][0].split(":")
    return getattr(importlib.import_module(module), function)(rest)


def usage() -> str:
    lines = ["usage: gfrnn VERB [options]      (gfrnn VERB --help shows a verb's options)", ""]
    lines += [f"  {verb:<13}{help}" for verb, (_, help) in VERBS.items()]
    return "\n".join([*lines, "", "  --debug shows the traceback of an error; --version prints the version"])


def complain(sentence: str, code: int) -> int:
    print(f"gfrnn: {' '.join(sentence.split())}", file=sys.stderr)
    return code
