"""bfloat16 products for the oracle: numbers that round themselves in a product, and remember how they were made.

Written from the sentences of products.py and from nothing that computes: `oracle.run` over arrays of these is the
forward pass, `gradients` goes back over what they remember.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import oracle


def to_bfloat16(value: float) -> float:
    """The nearest number with 8 bits of mantissa, the even one of two; by way of float32, as everywhere."""
    single = float(np.float32(value))
    if not math.isfinite(single):
        return single
    (bits,) = struct.unpack("<I", struct.pack("<f", single))
    low, rest = bits & 0xFFFF0000, bits & 0xFFFF
    nearest = low + 0x10000 if rest > 0x8000 or (rest == 0x8000 and low & 0x10000) else low
    value: float = struct.unpack("<f", struct.pack("<I", nearest))[0]
    return value


class Number:
    """A real number, the numbers it was made of, and how much each of them counts."""

    __slots__ = ("made_of", "rounds", "slope", "value")

    def __init__(self, value: float, *made_of: tuple[Number, float]) -> None:
        self.value, self.made_of, self.rounds, self.slope = float(value), made_of, False, 0.0

    @staticmethod
    def of(value: Any) -> Number:
        return value if isinstance(value, Number) else Number(value)

    def factor(self) -> Number:
        return Number(to_bfloat16(self.value), (self, 1.0))

    def result(self) -> Number:
        number = Number(self.value, (self, 1.0))
        number.rounds = True  # its gradient
        return number

    def __add__(self, other: Any) -> Number:
        other = Number.of(other)
        return Number(self.value + other.value, (self, 1.0), (other, 1.0))

    def __mul__(self, other: Any) -> Number:
        other = Number.of(other)
        return Number(self.value * other.value, (self, other.value), (other, self.value))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Number:
        return self * -1.0

    def __rsub__(self, other: Any) -> Number:
        return Number.of(other) + self * -1.0

    def __rtruediv__(self, other: float) -> Number:
        return Number(other / self.value, (self, -other / self.value**2))

    def exp(self) -> Number:
        return Number(math.exp(self.value), (self, math.exp(self.value)))

    def sqrt(self) -> Number:
        return Number(math.sqrt(self.value), (self, 0.5 / math.sqrt(self.value)))

    def tanh(self) -> Number:
        return Number(math.tanh(self.value), (self, 1.0 - math.tanh(self.value) ** 2))


def numbers(array: Any) -> Any:
    return np.vectorize(Number, otypes=[object])(array) if array is not None else None


def values(array: Any) -> Any:
    return None if array is None else np.vectorize(lambda n: Number.of(n).value, otypes=[float])(array)


def run_and_gradients(
    unit: str, wiring: str, w: dict[str, Any], x: Any, h0: Any, c0: Any, weigh: Any, **options: Any
) -> tuple[oracle.Result, dict[str, Any]]:
    """The oracle's answer in bfloat16 products, and the gradients of `oracle.functional(answer, weigh(answer))`."""
    places = {**w, "h0": h0} | ({} if c0 is None else {"c0": c0})
    places |= {"x": x} if options.get("input_size") is None else {}
    leaves = {name: numbers(array) for name, array in places.items()}
    weights = {name: leaves[name] for name in w}
    found = oracle.run(unit, wiring, weights, leaves.get("x", x), leaves["h0"], leaves.get("c0"), **options)
    answer = oracle.Result(*(values(part) for part in found))
    for part, cotangents in zip(found, weigh(answer), strict=True):
        if part is not None:
            for number, cotangent in zip(part.flat, cotangents.flat, strict=True):
                if isinstance(number, Number):
                    number.slope += cotangent
    go_back([n for part in found if part is not None for n in part.flat if isinstance(n, Number)])
    return answer, {name: np.vectorize(lambda n: n.slope, otypes=[float])(array) for name, array in leaves.items()}


def go_back(roots: list[Number]) -> None:
    """From the results to what they were made of, each after all that was made of it."""
    order: list[Number] = []
    seen: set[int] = set()
    stack = [(root, False) for root in roots]
    while stack:
        number, is_done = stack.pop()
        if is_done:
            order.append(number)
        elif id(number) not in seen:
            seen.add(id(number))
            stack.append((number, True))
            stack += [(part, False) for part, _ in number.made_of]
    for number in reversed(order):
        slope = to_bfloat16(number.slope) if number.rounds else number.slope
        for part, weight in number.made_of:
            part.slope += slope * weight
