"""Reading our own documents: their code blocks, their code spans, and the command lines in both."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "results").rglob("*.md"),
        *(ROOT / "src").rglob("*.md"),
    ]
)
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^|\n)\n((?:    .*\n|[ ]*\n(?=    ))+)")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
NO_SHELL = ("python", "pycon", "text")  # pycon: what docstrings show, which is run where they stand
ENDS = {"|", ">", ";", "&&"}  # of one command in a line of shell


@dataclass(frozen=True)
class Document:
    """What is code in a document, apart from its words."""

    path: Path
    python: tuple[str, ...]
    shell: tuple[str, ...]  # the lines of other blocks, those that end in a backslash joined
    spans: tuple[str, ...]


def read(path: Path) -> Document:
    text = path.read_text(encoding="utf-8")
    blocks = FENCED.findall(text)
    text = FENCED.sub("\n", text)
    shell = [block for kind, block in blocks if kind not in NO_SHELL] + INDENTED.findall(text)
    lines = "\n".join(shell).replace("\\\n", " ").splitlines()
    spans = [" ".join(span.split()) for span in SPAN.findall(INDENTED.sub("\n", text))]
    python = tuple(block for kind, block in blocks if kind == "python")
    return Document(path, python, tuple(line.strip() for line in lines), tuple(spans))


@dataclass(frozen=True)
class Command:
    """One `gfrnn ...` of a document."""

    document: str
    words: tuple[str, ...]  # after `gfrnn`
    given: str = ""  # what an echo before it writes into its standard input

    def __str__(self) -> str:
        return f"{self.document}: gfrnn {' '.join(self.words)}"


def commands(document: Document) -> list[Command]:
    """Every use of the command, in blocks and in spans, without those that only name it."""
    name = str(document.path.relative_to(ROOT))
    lines = [line for line in (*document.shell, *document.spans) if re.search(r"\bgfrnn\b", line)]
    return [Command(name, *found) for line in lines for found in commands_in(line)]


def commands_in(line: str) -> list[tuple[tuple[str, ...], str]]:
    """The words of every gfrnn in a line of shell, and what is echoed into it.

    >>> commands_in("echo 'print(1)' | gfrnn run-program RUN  # ask it")
    [(('run-program', 'RUN'), 'print(1)')]
    >>> commands_in("srun bash -c 'RANK=1 gfrnn train RECIPE ...'")
    [(('train', 'RECIPE'), '')]
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # no shell
        return []
    inner = [found for word in words if " " in word for found in commands_in(word)]
    places = [i for i, word in enumerate(words) if word == "gfrnn" and i + 1 < len(words)]
    return inner + [(command_at(words, i), echoed(words[:i])) for i in places if re.match(r"[a-zA-Z]", words[i + 1])]


def command_at(words: list[str], place: int) -> tuple[str, ...]:
    rest = words[place + 1 :]
    end = next((i for i, word in enumerate(rest) if word in ENDS), len(rest))
    return tuple(word for word in rest[:end] if word != "...")


def echoed(before: list[str]) -> str:
    return before[1] if before[:1] == ["echo"] and before[-1:] == ["|"] else ""


def targets(document: Document) -> set[str]:
    """The targets of every `make ...` in blocks and spans."""
    lines = (*document.shell, *document.spans)
    return {match[1] for line in lines if (match := re.match(r"make ([a-z]+)\b", line))}
