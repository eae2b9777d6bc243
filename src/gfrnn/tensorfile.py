"""Named tensors and small JSON documents in a folder whose manifest holds every file's checksum.

Only the safetensors format and JSON are read: nothing in such a folder can execute code.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from gfrnn.errors import DataError
from gfrnn.files import read_small, write_file

MANIFEST = "manifest.json"
HEADER_LIMIT = 1 << 20
TENSORS_LIMIT = 16 << 30


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in tensors.items()})


def unpack_tensors(content: bytes, name: Path | str) -> dict[str, Tensor]:
    """The tensors of a .safetensors file's bytes; `name` is for the message when it is none."""
    header = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else -1
    if not 0 <= header <= min(HEADER_LIMIT, len(content) - 8):
        raise DataError(f"{name} is not a safetensors file")
    try:
        # Copied out of the file's bytes: memory that is not aligned can make products round differently.
        return {key: tensor.clone() for key, tensor in safetensors.torch.load(content).items()}
    except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise DataError(f"{name} is damaged: {error}") from error


def pack_json(document: Any) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def unpack_json(content: bytes, name: Path | str) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise DataError(f"{name} is damaged: it must hold a JSON object")
    return document


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Every file, then the manifest that vouches for them."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} for name, content in files.items()
    }
    for name, content in files.items():
        write_file(folder / name, content)
    write_file(folder / MANIFEST, pack_json({"files": sums}))


def read_folder(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The named files, each verified against the manifest, or a DataError that says what is wrong with which."""
    if folder.is_symlink():
        raise DataError(f"{folder} is a symbolic link")
    sums = unpack_json(read_small(folder / MANIFEST), folder / MANIFEST).get("files")
    if not isinstance(sums, dict) or set(sums) != set(names):
        raise DataError(f"{folder / MANIFEST} is damaged: it must list {', '.join(sorted(names))}")
    files = {}
    for name in names:
        content = read_small(folder / name, TENSORS_LIMIT)
        found = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        if found != sums[name]:
            expected = sums[name].get("sha256") if isinstance(sums[name], dict) else sums[name]
            raise DataError(f"{folder / name} is damaged: expected sha256 {expected}, found {found['sha256']}")
        files[name] = content
    return files
