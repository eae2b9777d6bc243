"""What a type checker knows of a layer, and that it refuses what the layer would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import ROOT

api = pytest.importorskip("mypy.api", reason="needs mypy, of the extra [dev]")

# A line that ends in a comment is checked: `reveal_type(...)  # what it is`, or `...  # error: what mypy says`.
SNIPPET = """
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from gfrnn import GFGRU, GFLSTM, GFRNN, convert

x = torch.zeros(5, 2, 3)
lengths = torch.tensor([5, 3])


def of(packed: PackedSequence) -> None:
    reveal_type(GFLSTM(3, 4)(packed))  # tuple[PackedSequence, tuple[Tensor, Tensor]]
    reveal_type(GFGRU(3, 4)(packed, return_gates=True))  # tuple[PackedSequence, Tensor, PackedSequence]
    GFGRU(3, 4)(packed, lengths=lengths)  # error: No overload variant


lstm = GFLSTM(3, 4, num_layers=2)
reveal_type(lstm(x))  # tuple[Tensor, tuple[Tensor, Tensor]]
reveal_type(lstm(x, lengths=lengths, return_gates=True))  # tuple[Tensor, tuple[Tensor, Tensor], Tensor]
reveal_type(GFGRU(3, 4)(x))  # tuple[Tensor, Tensor]
reveal_type(GFRNN(3, 4)(x, return_gates=True))  # tuple[Tensor, Tensor, Tensor]
output, (h_n, c_n) = lstm(x, (torch.zeros(2, 2, 4), torch.zeros(2, 2, 4)))
reveal_type(c_n)  # Tensor
reveal_type(lstm.initial_state(2))  # tuple[Tensor, Tensor]
reveal_type(lstm.step(x[0]))  # tuple[Tensor, tuple[Tensor, Tensor]]
reveal_type(GFRNN(3, 4).step(x[0], torch.zeros(1, 2, 4)))  # tuple[Tensor, Tensor]
reveal_type(convert.from_torch(nn.LSTM(3, 4))(x))  # tuple[Tensor, tuple[Tensor, Tensor]]
lstm(x, torch.zeros(2, 2, 4))  # error: No overload variant
GFGRU(3, 4)(x, (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)))  # error: No overload variant
"""


def test_a_type_checker_knows_what_a_call_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET, encoding="utf-8")
    monkeypatch.chdir(ROOT)  # with what mypy remembers of torch and of us from `make test`, it answers in seconds
    out, problem, _ = api.run(["--no-pretty", "--no-error-summary", str(file)])
    assert problem == ""
    said: dict[int, str] = {}
    for line in out.splitlines():
        if found := re.match(r".*snippet\.py:(\d+): (?:note: Revealed type is \"(.*)\"|(error: .*?))$", line):
            known = re.sub(r"tuple\[[^\[\]]*, fallback=([\w.]+)\]", r"\1", found[2] or found[3])  # a named tuple
            said.setdefault(int(found[1]), re.sub(r"[\w.]+\.(Tensor|PackedSequence)", r"\1", known))
    lines = enumerate(SNIPPET.splitlines(), start=1)
    expected = {number: line.partition("  # ")[2] for number, line in lines if "  # " in line}
    assert said.keys() == expected.keys(), out
    for number, words in expected.items():
        assert said[number].startswith(words) if words.startswith("error") else said[number] == words, out
