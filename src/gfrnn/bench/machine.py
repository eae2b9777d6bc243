"""What the machine can do: its rate of multiplying matrices and of reading memory."""

from collections.abc import Callable
from typing import Any

import torch

from gfrnn.bench.accounting import FLOAT, square_flops
from gfrnn.bench.clock import Entry, sample

OUR_INNER, OUR_OUTER = 420, 423  # of GF-LSTM 3x140: L*H of h*_{t-1}, (G-1)*H + L rows of a layer's gates
READ_WIDTH = 1024
CACHE_READ, MEMORY_READ = "read, weights' size", "read, memory"


def square_product(n: int) -> Entry:
    """The product of two large squares: the rate called the machine's peak."""
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    return Entry(peak_name(n), lambda: torch.mm(a, b, out=out), flops=square_flops(n))


def peak_name(n: int) -> str:
    return f"sgemm {n}"


def square_product_in_bfloat16(n: int) -> Entry:
    """The same, of numbers in bfloat16: what torch makes of this CPU's instructions for them, if it has any.

    Of a quarter of the size: without such instructions torch may need a hundred times as long.
    """
    n = max(16, n // 4)
    a, b = torch.randn(n, n).bfloat16(), torch.randn(n, n).bfloat16()
    out = torch.empty(n, n, dtype=torch.bfloat16)
    return Entry(f"bfloat16 gemm {n}", lambda: torch.mm(a, b, out=out), flops=square_flops(n))


def our_product(rows: int) -> Entry:
    """(rows x 420) (420 x 423): one layer's gates at one timestep."""
    a, b = torch.randn(rows, OUR_INNER), torch.randn(OUR_INNER, OUR_OUTER)
    out = torch.empty(rows, OUR_OUTER)
    name = f"sgemm {rows} x {OUR_INNER} x {OUR_OUTER}"
    return Entry(name, lambda: torch.mm(a, b, out=out), flops=2.0 * rows * OUR_INNER * OUR_OUTER, x=rows)


def read(name: str, size: int) -> Entry:
    """Reading `size` bytes again and again, by whichever of torch's reductions is fastest at it here.

    A buffer as large as a model's weights stays in the cache they stay in; a much larger one shows the memory.
    """
    rows = max(1, size // (FLOAT * READ_WIDTH))
    buffer, vector, out = torch.ones(rows, READ_WIDTH), torch.ones(READ_WIDTH), torch.empty(rows)
    ways: list[Callable[[], Any]] = [lambda: torch.mv(buffer, vector, out=out), lambda: buffer.sum()]
    best = min(ways, key=lambda way: min(sample(Entry(name, way), 3) for _ in range(4)))
    return Entry(name, best, bytes=float(rows * READ_WIDTH * FLOAT))
