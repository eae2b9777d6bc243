"""A thread of the op that gets no memory, or cannot start, is an exception in the caller, not the end of Python."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from gfrnn.ops import cpu

pytestmark = [
    pytest.mark.skipif(bool(cpu.why_unavailable()), reason="; ".join(cpu.why_unavailable())),
    pytest.mark.skipif(sys.platform != "linux", reason="limits the process as Linux does"),
]

# Calls `work` with more and more memory to be had, until it succeeds; prints what it said before.
SWEEP = """
    import resource, torch

    def sweep(work):
        page, said = resource.getpagesize(), []
        for megabytes in range(0, 400, 3):
            size = int(open("/proc/self/statm").read().split()[0]) * page
            resource.setrlimit(resource.RLIMIT_AS, (size + (megabytes << 20), resource.RLIM_INFINITY))
            try:
                work()
                print("\\n".join(said))
                print("done")
                return
            except (RuntimeError, MemoryError) as error:
                said.append(f"{type(error).__name__}: {error}".splitlines()[0])
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    torch.set_num_threads(3)
"""

SCAN = """
    from gfrnn import GFLSTM

    def train(layer, x):
        layer.zero_grad()
        layer(x)[0].sum().backward()

    train(GFLSTM(8, 4, 3, backend="cpu"), torch.randn(4, 6, 8))  # torch's own threads are there now
    layer, x = GFLSTM(8, 200, 3, backend="cpu"), torch.randn(4, 400, 8)
    sweep(lambda: train(layer, x))
"""

TEXT = """
    from gfrnn.models import CharLM

    CharLM(hidden_size=4).generate("The ", 20)  # imports; so small that one thread writes
    model = CharLM(hidden_size=140)
    model(torch.zeros(2, 6, dtype=torch.int64))
    sweep(lambda: model.generate("The ", 20, seed=1))
"""


def run(program: str) -> list[str]:
    # Every larger piece of memory comes from the system, and goes back: nothing is left over from before.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "3"}
    code = textwrap.dedent(SWEEP) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    *said, last = done.stdout.splitlines()
    assert last == "done"
    return said


def test_workers_of_the_scan() -> None:
    said = run(SCAN)
    assert any(line.endswith("gfrnn: a worker thread failed: std::bad_alloc") for line in said), said


def test_threads_that_write_text() -> None:
    said = run(TEXT)
    assert any("gfrnn: a worker thread failed: Resource temporarily unavailable" in line for line in said), said
