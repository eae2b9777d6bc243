"""The code length of every block of a split, kept beside the model that was scored: blocks-test.safetensors.

Two runs that keep it can be compared later, block by block, without running either. The file's header says what was
scored by what: the checksums of text and model, the split, the characters, and a checksum of all that. What the
split cost a model that went on learning (dynamic.py) is in a file of its own: blocks-test-dynamic.safetensors.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from gfrnn.errors import DataError
from gfrnn.storage.files import read_small, replace_file
from gfrnn.storage.run_folder import blocks_name
from gfrnn.tasks.text.score import BLOCK, Score

LIMIT = 64 << 20


@dataclass(frozen=True)
class Origin:
    """What was scored, and by which weights in which precision."""

    text_sha256: str
    split: str
    characters: int
    model_sha256: str
    precision: str = "float32"


@dataclass(frozen=True)
class DynamicOrigin(Origin):
    """The same, and how the model went on learning: the settings in JSON."""

    settings: str = ""


@dataclass(frozen=True)
class Blocks:
    """Bits of every 1,000 characters (`bits`, float64) of one split by one model."""

    origin: Origin
    bits: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Characters of each block."""
        sizes = np.full(len(self.bits), float(BLOCK))
        sizes[-1] = self.origin.characters - BLOCK * (len(self.bits) - 1)
        return sizes

    @property
    def bpc(self) -> float:
        return float(self.bits.sum() / self.origin.characters)

    def comparable(self, other: Blocks) -> None:
        """Raise unless both are of the same split of the same text."""
        mine, others = ((o.text_sha256, o.split, o.characters) for o in (self.origin, other.origin))
        if mine != others:
            said = " and ".join(f"sha256 {sha256[:16]} ({split}, {count:,})" for sha256, split, count in (mine, others))
            raise DataError(f"two runs were scored on different texts, {said}: they cannot be compared")
        if type(self.origin) is not type(other.origin):
            raise DataError(
                "one run was scored as it was trained, the other while it went on learning: they cannot be compared"
            )


def checksum(origin: Origin, bits: np.ndarray) -> str:
    """Of the numbers and of what they are said to be."""
    words = json.dumps(asdict(origin), sort_keys=True).encode()
    return hashlib.sha256(words + bits.astype("<f8").tobytes()).hexdigest()


def keep(run: Path, origin: Origin, score: Score) -> Path:
    """Write the blocks of a split into a run folder."""
    about = {name: str(value) for name, value in asdict(origin).items()}
    path = run / blocks_name(origin.split, isinstance(origin, DynamicOrigin))
    content = {"bits": np.ascontiguousarray(score.blocks)}
    replace_file(path, safetensors.numpy.save(content, {**about, "sha256": checksum(origin, score.blocks)}))
    return path


def read(run: Path, split: str, dynamic: bool = False) -> Blocks:
    """The blocks kept in a run folder; a DataError says that there are none, or what is wrong with them."""
    path, kind = run / blocks_name(split, dynamic), DynamicOrigin if dynamic else Origin
    if not path.exists():
        command = f"gfrnn eval {run}{' --dynamic' if dynamic else ''} --split {split}"
        raise DataError(f"{run} keeps no code lengths of its {split} split: `{command}` makes them")
    content = read_small(path, LIMIT)
    try:
        about = header(content)
        bits = safetensors.numpy.load(content)["bits"]
        numbers = {"characters": int(about["characters"])}
        origin = kind(**{name: numbers.get(name, about[name]) for name in kind.__dataclass_fields__})
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    whole = bits.dtype == np.float64 and bits.ndim == 1 and len(bits) == -(-origin.characters // BLOCK) > 0
    if not whole or checksum(origin, bits) != about.get("sha256") or origin.split != split:
        raise DataError(f"{path} is damaged: its numbers are not those it was written with")
    if not np.isfinite(bits).all() or bits.min() < 0:
        raise DataError(f"{path} is damaged: a block costs no finite number of bits")
    return Blocks(origin, bits)


def header(content: bytes) -> dict[str, Any]:
    """The words that a safetensors file carries beside its numbers."""
    size = int.from_bytes(content[:8], "little")
    if not 0 < size <= len(content) - 8:
        raise ValueError("it is no safetensors file")
    words = json.loads(content[8 : 8 + size]).get("__metadata__")
    if not isinstance(words, dict):
        raise ValueError("its header says nothing")
    return words
