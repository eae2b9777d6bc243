"""Named tensors and small JSON documents in a folder whose manifest holds every file's checksum.

Only the safetensors format and JSON are read: nothing in such a folder can execute code.
"""

import contextlib
import errno
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gfrnn.errors import DataError
from gfrnn.storage.files import make_folder, read_small, sync_folder, temporary, write_file
from gfrnn.storage.run_folder import COMMITTED, file_in

MANIFEST = "manifest.json"
HEADER_LIMIT = 1 << 20
TENSORS_LIMIT = 16 << 30


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


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


def differences(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """What names, shapes and dtypes differ from those expected, in words; empty when none does."""
    said = [f"{name} is missing" for name in expected if name not in found]
    said += [f"{name} is unexpected" for name in found if name not in expected]
    both = [name for name in expected if name in found]
    for what in ("shape", "dtype"):
        pairs = [(name, getattr(found[name], what), getattr(expected[name], what)) for name in both]
        said += [
            f"{name} is {shown(is_)} instead of {shown(should_be)}"
            for name, is_, should_be in pairs
            if is_ != should_be
        ]
    return "; ".join(said[:4]) + (f"; and {len(said) - 4} more" if len(said) > 4 else "")


def shown(shape_or_dtype: torch.Size | torch.dtype) -> str:
    """
    >>> shown(torch.Size([2, 3])), shown(torch.float32)
    ('(2, 3)', 'float32')
    """
    if isinstance(shape_or_dtype, torch.Size):
        return str(tuple(shape_or_dtype))
    return str(shape_or_dtype).removeprefix("torch.")


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


def replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """The same in a folder that may hold older ones, and others besides: all are replaced in one commit.

    The new files are made to last in a folder of their own inside, and one rename gives that the name COMMITTED. From
    then on each file in there counts instead of its namesake outside (`file_in`), whose place it takes by a rename of
    its own. So whenever the machine stops the files that count are all old or all new.
    """
    make_folder(folder)
    committed = folder / COMMITTED
    with temporary(committed) as part:
        write_folder(part, files)
        sync_folder(part)
        move_out(folder)  # of a save that was killed
        while not renamed(part, committed):
            move_out(folder)  # of somebody who saves at the same time
        sync_folder(folder)
    move_out(folder)


def renamed(part: Path, committed: Path) -> bool:
    """False when there are other files that were committed already."""
    try:
        os.rename(part, committed)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def move_out(folder: Path) -> None:
    """Let what was committed take its place. Somebody who saves at the same time may be doing the same."""
    committed = folder / COMMITTED
    if not committed.exists():
        return
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(committed):
            with contextlib.suppress(FileNotFoundError):
                os.replace(committed / name, folder / name)
    sync_folder(folder)
    with contextlib.suppress(OSError):
        committed.rmdir()


def read_folder(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The named files, each verified against the manifest, or a DataError that says what is wrong with which."""
    for path in (folder, folder / COMMITTED):
        if path.is_symlink():
            raise DataError(f"{path} is a symbolic link")
    sums = unpack_json(read_small(file_in(folder, MANIFEST)), folder / MANIFEST).get("files")
    if not isinstance(sums, dict) or set(sums) != set(names):
        raise DataError(f"{folder / MANIFEST} is damaged: it must list {', '.join(sorted(names))}")
    files = {}
    for name in names:
        content = read_small(file_in(folder, name), TENSORS_LIMIT)
        found = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        if found != sums[name]:
            expected = sums[name].get("sha256") if isinstance(sums[name], dict) else sums[name]
            raise DataError(f"{folder / name} is damaged: expected sha256 {expected}, found {found['sha256']}")
        files[name] = content
    return files
