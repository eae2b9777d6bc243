"""Imported by the server that children are forked from: whatever is slow the first time has then been done."""

import os
import tempfile
from pathlib import Path

import torch
from harness import command
from runs import run_tiny

os.fsync = os.fstat  # type: ignore[assignment]  # as in tests/conftest.py
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    for recipe in ("modern-gated-lstm", "hutter-gated-lstm"):
        run_tiny(Path(folder), recipe, recipe, updates=1, checkpoint_every=0)
    command("eval", f"{folder}/{recipe}")
    command("generate", f"{folder}/{recipe}", "--chars", "1")
    command("plot", f"{folder}/{recipe}", "--out", f"{folder}/plot")
    command("programs", "--count", "1")
    command("doctor")
