"""The generator's rules written down once more, as literally as possible: a real stack, both hardness values drawn at
every call, a random permutation of operand positions and of variables. Slow, and with nothing of the package in it."""

import random
from collections.abc import Callable

Hardness = Callable[[], tuple[int, int]]


def literal_program(rng: random.Random, hardness: Hardness) -> tuple[str, int]:
    stack: list[tuple[str, int]] = []
    variables = rng.sample("abcdefghij", 10)

    def operand() -> tuple[str, int]:
        if stack:
            return stack.pop()
        value = rng.randint(1, 10 ** hardness()[0])
        return str(value), value

    def operands(n: int) -> list[tuple[str, int]]:
        drawn: dict[int, tuple[str, int]] = {}
        for position in rng.sample(range(n), n):
            drawn[position] = operand()
        return [drawn[i] for i in range(n)]

    def small() -> int:
        return rng.randint(1, 4 * hardness()[0])

    def pair() -> tuple[list[str], str, int]:
        (a, va), (b, vb) = operands(2)
        return rng.choice([([], f"({a}+{b})", va + vb), ([], f"({a}-{b})", va - vb)])

    def smallmul() -> tuple[list[str], str, int]:
        a, va = operand()
        n = small()
        return rng.choice([([], f"({a}*{n})", va * n), ([], f"({n}*{a})", va * n)])

    def equality() -> tuple[list[str], str, int]:
        return ([], *operand())

    def assign() -> tuple[list[str], str, int]:
        v = variables.pop(0)
        (a, va), (b, vb) = operands(2)
        return rng.choice([([f"{v}={a};"], f"({v}+{b})", va + vb), ([f"{v}={a};"], f"({v}-{b})", va - vb)])

    def loop() -> tuple[list[str], str, int]:
        v = variables.pop(0)
        (a, va), (b, vb) = operands(2)
        n = small()
        sign = rng.choice("+-")
        value = va
        for _ in range(n):
            value = value + vb if sign == "+" else value - vb
        return [f"{v}={a}", f"for x in range({n}):{v}{sign}={b}"], v, value

    def conditional() -> tuple[list[str], str, int]:
        (a, va), (b, vb), (c, vc), (d, vd) = operands(4)
        if rng.random() < 0.5:
            return [], f"({c} if {a}>{b} else {d})", vc if va > vb else vd
        return [], f"({c} if {a}<{b} else {d})", vc if va < vb else vd

    lines: list[str] = []
    for _ in range(hardness()[1]):
        statements, expression, value = rng.choice([pair, smallmul, equality, assign, loop, conditional])()
        lines += statements
        stack.append((expression, value))
    expression, value = stack.pop()
    return "\n".join([*lines, f"print({expression})"]), value
