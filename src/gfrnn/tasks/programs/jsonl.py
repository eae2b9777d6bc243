"""Files of programs: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from gfrnn.errors import DataError
from gfrnn.models.program_symbols import encode_source, encode_target
from gfrnn.tasks.programs.generator import Program

LONGEST_LINE = 1 << 16
FIELDS = {"source": str, "target": str, "length": int, "nesting": int}


def dump(program: Program) -> str:
    """One line of a file of programs."""
    return json.dumps(program._asdict()) + "\n"


def read(path: str | Path) -> Iterator[Program]:
    """The programs of a JSON-lines file; a DataError names the first line that is not one."""
    count = 0
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for count, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), ""), 1):
            try:
                yield parse(line)
            except DataError as error:
                raise DataError(f"{path} line {count}: {error}") from None
    if not count:
        raise DataError(f"{path} is empty")


def parse(line: str) -> Program:
    """One line of such a file.

    >>> parse('{"source": "print(7)", "target": "7", "length": 1, "nesting": 1}').target
    '7'
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError("not a JSON object") from None
    if not isinstance(row, dict) or set(row) != set(FIELDS):
        raise DataError(f"not an object with exactly the keys {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        if type(row[name]) is not kind:
            raise DataError(f'"{name}" is not {"a text" if kind is str else "a whole number"}')
    if min(row["length"], row["nesting"]) < 1:
        raise DataError("length and nesting are counted from 1")
    encode_source(row["source"])
    encode_target(row["target"])
    return Program(**row)
