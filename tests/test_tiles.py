"""Products by whole tiles (ops/cpu/tiles.h): the code for AMX on any CPU, by a stand-in for its instructions."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from test_op import BF16_INSTRUCTIONS, COMPILER, SOURCE, TESTS

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
SIDE, WIDTH, BLOCK = 16, 16, 32  # rows and columns of a tile of sums; terms at a time

PRODUCT = """
#include "kernels.h"
#include "tiles.h"
extern "C" void multiply(int64_t M, int64_t N, int64_t K, const void* a, const void* panels, const float* const* from,
                         float* const* to, int64_t column) {
  const TileRegisters<Tiled> registers;
  const auto *rows = static_cast<const Bits16*>(a), *b = static_cast<const Bits16*>(panels);
  multiply_tiles(M, N, rows, padded<Tiled>(K), b, K, from, to, column);
}
"""


@pytest.fixture(scope="module", params=["instructions", "plain"])
def multiply(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes._NamedFuncPointer:
    """As AMX runs it, by the stand-in; and the form that the generic kernels run in a build for the tests."""
    folder = tmp_path_factory.mktemp("tiles")
    (folder / "product.cpp").write_text(PRODUCT)
    stand_in = ["-D__AMX_BF16__", "-include", str(TESTS / "amx.h")] if request.param == "instructions" else []
    words = [str(COMPILER), "-std=c++20", "-O2", "-w", "-fPIC", "-shared", "-DGFRNN_TILED", "-DGFRNN_REGISTER_BYTES=64"]
    library = folder / "product.so"
    subprocess.run([*words, *stand_in, f"-I{SOURCE}", folder / "product.cpp", "-o", library], check=True)
    return ctypes.CDLL(str(library)).multiply


def up(n: int, to: int) -> int:
    return -(-n // to) * to


def in_bfloat16(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 16 bits, and the numbers that they are."""
    rounded = torch.from_numpy(numbers).bfloat16()
    return rounded.view(torch.int16).numpy().view(np.uint16), rounded.double().numpy()


def in_panels(bits: np.ndarray) -> np.ndarray:
    """(K, N) as panels [N / 32][K / 2][32][2]: two terms side by side, filled up with zeros."""
    full = np.zeros((up(bits.shape[0], BLOCK), up(bits.shape[1], 2 * WIDTH)), np.uint16)
    full[: bits.shape[0], : bits.shape[1]] = bits
    return full.reshape(len(full) // 2, 2, -1, 2 * WIDTH).transpose(2, 0, 3, 1).copy()


def places(rows: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(rows))(*(row.ctypes.data for row in rows))


class Factors:
    """Random ones of an M x K x N product, as tiles read them, and what it comes to in float64."""

    def __init__(self, M: int, K: int, N: int) -> None:
        random = np.random.default_rng(M * K + N)
        a, self.a = in_bfloat16(random.standard_normal((M, K), np.float32))
        b, self.b = in_bfloat16(random.standard_normal((K, N), np.float32))
        self.M, self.K, self.N = M, K, N
        self.rows = np.zeros((M + SIDE - 1, up(K, BLOCK)), np.uint16)
        self.rows[:M, :K] = a
        self.rows[M:] = 0x7F80  # what is read beyond the last row changes nothing: infinity
        self.panels = in_panels(b)
        self.start = random.standard_normal((M, N), np.float32)

    def product(
        self, multiply: ctypes._NamedFuncPointer, rows: range | None = None, scattered: bool = False, one: bool = False
    ) -> np.ndarray:
        """Of these rows. `scattered`: rows do not lie equally far apart; `one`: all begin with the same row."""
        chosen, column = rows or range(self.M), 3
        apart = self.N + 2 * column
        begin, end = (np.full((2 * self.M + 1, apart), np.nan, np.float32) for _ in range(2))
        lines = [2 * i + (scattered and i % 3 == 2) for i in range(len(chosen))]
        for line, m in zip(lines, chosen, strict=True):
            begin[line, column:-column] = self.start[0 if one else m]
        from_ = [begin[lines[0]]] * len(lines) if one else [begin[line] for line in lines]
        numbers = [ctypes.c_int64(n) for n in (len(chosen), self.N, self.K)]
        a = self.rows[chosen.start :].ctypes.data_as(ctypes.c_void_p)
        b = self.panels.ctypes.data_as(ctypes.c_void_p)
        multiply(*numbers, a, b, places(from_), places([end[line] for line in lines]), ctypes.c_int64(column))
        touched = np.zeros(end.shape, bool)
        touched[lines, column:-column] = True
        assert np.isnan(end[~touched]).all(), "nothing else is written"
        return end[lines, column:-column]


# Rows and columns below, at and beyond a tile and two; terms of one block, of one chain of sums, and of more.
SHAPES = [*itertools.product([1, 16, 17, 33], [3, 32, 70], [1, 140, 700]), (64, 128, 640), (50, 423, 641)]


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES, ids="{0[0]}x{0[1]}x{0[2]}".format)
def test_products(multiply: ctypes._NamedFuncPointer, shape: tuple[int, int, int]) -> None:
    M, N, K = shape
    factors = Factors(M, K, N)
    for one in (False, True):
        start = factors.start[:1] if one else factors.start
        truth, scale = start + factors.a @ factors.b, abs(start) + abs(factors.a) @ abs(factors.b)
        ours = factors.product(multiply, one=one)
        assert (abs(ours - truth) <= scale * K**0.5 * 2**-23).all()


@needs_compiler
def test_no_bit_depends_on_how_rows_lie_or_are_shared(multiply: ctypes._NamedFuncPointer) -> None:
    for K in (140, 700):
        factors = Factors(41, K, 70)
        whole = factors.product(multiply)
        assert (factors.product(multiply, scattered=True) == whole).all()
        for cut in (5, 16, 20, 32):
            parts = [factors.product(multiply, range(cut)), factors.product(multiply, range(cut, 41))]
            assert (np.concatenate(parts) == whole).all()


TILE = """
#include "kernels.h"
#include "tiles.h"
extern "C" void product(const void* a, const void* b, const float* const* from, float* const* to) {
  const TileRegisters<Tiled> registers;
  tile_product<2, 2>(20, static_cast<const Bits16*>(a), 64, static_cast<const Bits16*>(b), 40, from, to, 0, 30);
}
"""
AMX = [*BF16_INSTRUCTIONS, "-mamx-tile", "-mamx-bf16"]


@pytest.mark.skipif(COMPILER is None or shutil.which("objdump") is None, reason="needs a C++ compiler and objdump")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="an instruction of x86-64")
@pytest.mark.parametrize("flags", [AMX, BF16_INSTRUCTIONS], ids=["with", "without"])
def test_tiles_are_multiplied_by_the_instruction_made_for_it(flags: list[str], tmp_path: Path) -> None:
    """And every function that sets the shapes of tiles puts back those that it found."""
    source, compiled = tmp_path / "tile.cpp", tmp_path / "tile.o"
    source.write_text(TILE)
    subprocess.run([str(COMPILER), "-std=c++20", *flags, f"-I{SOURCE}", "-c", source, "-o", compiled], check=True)
    listing = subprocess.run(["objdump", "-d", compiled], capture_output=True, text=True, check=True).stdout
    tiles = flags == AMX
    assert ("tdpbf16ps" in listing) == tiles
    assert (listing.count("sttilecfg"), listing.count("ldtilecfg")) == (tiles, 2 * tiles)


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_tiles_without_the_instruction(tmp_path: Path) -> None:
    """What surrounds it, run by the generic kernels: packing, tails, turning, threads."""
    from test_wheels import copy_of_the_sources

    checkout = copy_of_the_sources(tmp_path / "checkout")
    variables = {**os.environ, "GFRNN_BUILD": "require", "CXXFLAGS": "-DGFRNN_TILED", "CFLAGS": "-DGFRNN_TILED"}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "-i"], cwd=checkout, env=variables, check=True)
    op = checkout / "src/gfrnn/ops/cpu/_op.so"
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-k",
        "bfloat16 or threads",
        str(TESTS / "test_backends.py"),
    ]
    run = subprocess.run(words, env={**os.environ, "GFRNN_OP": str(op), "GFRNN_ISA": "generic"}, check=False)
    assert run.returncode == 0
