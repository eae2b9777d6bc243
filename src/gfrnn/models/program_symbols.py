"""The two alphabets of the program task: 40 + 1 source symbols, 12 + 1 target symbols (the paper's 41 and 13).

>>> encode_source("print(7)")[:3], decode_target(encode_target("-12"))
([23, 24, 18], '-12')
"""

from __future__ import annotations

from collections.abc import Iterable

from gfrnn.errors import DataError

SOURCE_CHARACTERS = "0123456789" + "abcdefghijlnoprstx" + "+-*=;():<>" + " \n"
TARGET_CHARACTERS = "0123456789-"

SOURCE_PAD = len(SOURCE_CHARACTERS)
SOURCE_SIZE = SOURCE_PAD + 1
TARGET_END = len(TARGET_CHARACTERS)
TARGET_PAD = TARGET_END + 1
TARGET_SIZE = TARGET_PAD + 1
# The decoder's first input. Padding cannot be used: it must never enter a state.
TARGET_START = TARGET_END
MOST_SYMBOLS = 64  # of an answer, its end mark included: far more than the longest of any program that is generated

assert len(set(SOURCE_CHARACTERS)) == 40 and SOURCE_SIZE == 41
assert len(set(TARGET_CHARACTERS)) == 11 and TARGET_SIZE == 13

_SOURCE_ID = {character: i for i, character in enumerate(SOURCE_CHARACTERS)}
_TARGET_ID = {character: i for i, character in enumerate(TARGET_CHARACTERS)}
_SPOKEN = {
    "\t": "a tab",
    "\r": "a carriage return (CRLF line ends; save the file with LF)",
    "\ufeff": "a byte-order mark",
}


def first_unknown(source: str) -> tuple[int, int, str] | None:
    """(line, column, name) of the first character outside the source alphabet, counted from 1."""
    for offset, character in enumerate(source):
        if character not in _SOURCE_ID:
            line_start = source.rfind("\n", 0, offset) + 1
            name = _SPOKEN.get(character, repr(character))
            return source.count("\n", 0, offset) + 1, offset - line_start + 1, name
    return None


def encode_source(source: str) -> list[int]:
    """Ids of a program's characters; a character outside the alphabet is named."""
    if not source:
        raise DataError("the program is empty")
    try:
        return [_SOURCE_ID[character] for character in source]
    except KeyError:
        unknown = first_unknown(source)
        assert unknown is not None
        line, column, name = unknown
        raise DataError(f"line {line}, column {column}: {name} is not one of the language's 40 symbols") from None


def encode_target(target: str) -> list[int]:
    """Ids of an answer's characters and the end mark."""
    try:
        return [_TARGET_ID[character] for character in target] + [TARGET_END]
    except KeyError as error:
        raise DataError(f"{target!r} is not an answer: {error.args[0]!r} is neither a digit nor '-'") from None


def decode_target(ids: Iterable[int]) -> str:
    """The answer up to the end mark."""
    characters = []
    for i in ids:
        if i == TARGET_END:
            break
        characters.append(TARGET_CHARACTERS[i])
    return "".join(characters)
