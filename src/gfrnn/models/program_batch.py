"""Programs as padded tensors. T source symbols, U target symbols (end mark included), B programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gfrnn.models.program_symbols import (
    SOURCE_PAD,
    TARGET_PAD,
    TARGET_START,
    encode_source,
    encode_target,
)


class Batch(NamedTuple):
    """source (T, B), source_lengths (B,), target (U, B), target_lengths (B,); what is beyond a length is padding.

    `usual_symbols`, in training: the average number of target symbols of programs like these.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    usual_symbols: float | None = None

    @property
    def decoder_input(self) -> Tensor:
        """The target one step late: what teacher forcing feeds, (U, B)."""
        start = torch.full_like(self.target[:1], TARGET_START)
        # A row's last symbol is the end mark, so padding is only ever fed beyond its length.
        return torch.cat([start, self.target[:-1]])

    @property
    def real(self) -> Tensor:
        """True where the target is not padding, (U, B)."""
        return torch.arange(len(self.target), device=self.target.device)[:, None] < self.target_lengths

    def to(self, device: torch.device) -> Batch:
        source, target = self.source.to(device), self.target.to(device)
        lengths = self.source_lengths.to(device), self.target_lengths.to(device)
        return Batch(source, lengths[0], target, lengths[1], self.usual_symbols)

    def rows(self, chosen: slice) -> Batch:
        """Some of the programs, with the same padding."""
        source, target = self.source[:, chosen], self.target[:, chosen]
        return Batch(source, self.source_lengths[chosen], target, self.target_lengths[chosen], self.usual_symbols)


def pad(rows: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """(longest, B) ids and (B,) lengths."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    padded = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])
    return padded.T.contiguous(), torch.tensor(lengths)


class Example(Protocol):
    """A program and what it prints (tasks.programs.Program is one)."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


def collate(programs: Sequence[Example]) -> Batch:
    """A batch of these programs.

    >>> from types import SimpleNamespace as Program
    >>> programs = [Program(source="print(7)", target="7"), Program(source="print((3-5))", target="-2")]
    >>> batch = collate(programs)
    >>> batch.source.shape, batch.target.T.tolist()
    (torch.Size([12, 2]), [[7, 11, 12], [10, 2, 11]])
    """
    source = pad([encode_source(program.source) for program in programs], SOURCE_PAD)
    target = pad([encode_target(program.target) for program in programs], TARGET_PAD)
    return Batch(*source, *target)
