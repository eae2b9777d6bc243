"""What kinds of programs are asked for: how long, how deep, in what order, with what literals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gfrnn.errors import UsageError

CURRICULA = ("baseline", "naive", "mix", "combined")
ORDERED = ("naive", "combined")  # curricula in which a program's index tells how hard it may be
LITERALS = ("ideal", "original")
WORD = 1 << 32  # as many values has a random number of the original generator
VARIABLES = "abcdefghij"
LONGEST = 30
DEEPEST = len(VARIABLES)
Ranges = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Settings:
    """What is drawn. The hardness (length, nesting) is asked for again by every literal and loop count of a program.

    baseline: always (max_length, max_nesting).
    naive: (1, 1) first, then longer one by one up to max_length, then length 1 at the next nesting, and so on up to
        (max_length, max_nesting); `span` programs are shared equally among these levels.
    mix: both uniform, from 1 to the maximum.
    combined: mix in one call out of five, otherwise naive's level.
    `length` and `nesting` fix either of them (a test cell fixes both).
    A literal is uniform from 1 to 10 ** length ("ideal"), or, as the original generator drew it ("original"), the
    remainder of a random number of 32 bits by 10 ** length, plus 1: uneven at length 9, and at most 2 ** 32.
    """

    max_length: int = 10
    max_nesting: int = 5
    curriculum: str = "mix"
    length: int | None = None
    nesting: int | None = None
    span: int = 320_000
    literals: str = "ideal"

    def __post_init__(self) -> None:
        if self.curriculum not in CURRICULA:
            raise UsageError(f"curriculum {self.curriculum!r} is not one of {', '.join(CURRICULA)}")
        if self.literals not in LITERALS:
            raise UsageError(f"literals {self.literals!r} is not one of {', '.join(LITERALS)}")
        for name, value, most in (
            ("max-length", self.max_length, LONGEST),
            ("max-nesting", self.max_nesting, DEEPEST),
            ("length", self.length, self.max_length),
            ("nesting", self.nesting, self.max_nesting),
        ):
            if value is not None and not 1 <= value <= most:
                raise UsageError(f"{name} {value} is out of range: 1 to {most}")
        if self.span < 1:
            raise UsageError(f"span {self.span} is not a positive number of programs")

    def level(self, index: int) -> tuple[int, int]:
        """Naive's (length, nesting) for the program number `index`."""
        levels = self.max_length * self.max_nesting
        nesting, length = divmod(min(index * levels // self.span, levels - 1), self.max_length)
        return length + 1, nesting + 1

    def ranges(self, index: int, curriculum: str) -> Ranges:
        """(smallest, how many) values of the length and of the nesting that program `index` draws from."""
        if curriculum == "mix":
            drawn = [(1, self.max_length), (1, self.max_nesting)]
        elif curriculum == "baseline":
            drawn = [(self.max_length, 1), (self.max_nesting, 1)]
        else:
            drawn = [(value, 1) for value in self.level(index)]
        length, nesting = drawn
        return (self.length, 1) if self.length else length, (self.nesting, 1) if self.nesting else nesting

    def key(self) -> str:
        """What of the settings decides a program; part of every program's hash."""
        fixed = f"{self.length or 0},{self.nesting or 0}"
        span = self.span if self.curriculum in ORDERED else 0
        literals = "" if self.literals == "ideal" else f",{self.literals}"
        return f"{self.curriculum},{self.max_length},{self.max_nesting},{fixed},{span}{literals}"

    def random_bytes(self) -> int:
        """Enough for the largest program, with 64 bits over so that no choice is visibly uneven."""
        value = math.log2(10) * self.max_length if self.literals == "ideal" else math.log2(WORD)
        literal = value + math.log2(5 * self.max_length * self.max_nesting)
        bits = 64 + 64 + self.max_nesting * (4 * literal + 32)
        return math.ceil(bits / 8)
