"""The folder that an export is written to: all of it, or nothing."""

import importlib
import os
from pathlib import Path

from gfrnn.errors import DataError, UsageError
from gfrnn.export.step import load
from gfrnn.storage.files import make_folder, remove, temporary

# Format -> the module of this floor whose `write(model, folder)` makes its files.
FORMATS = {"onnx": "onnx_files", "torch-export": "torch_program", "hf": "hf_folder"}


def export(run: str | Path, format: str, out: Path, force: bool = False) -> dict[str, float]:
    """Write `run` to the folder `out`; returns, for every file compared, how far it is from the model."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file: name a folder")
    if out.exists() and not force:
        raise UsageError(f"{out} exists: choose another --out, or --force to replace what is in it")
    model = load(run, format)
    writer = importlib.import_module(f"gfrnn.export.{FORMATS[format]}")
    try:
        make_folder(out.absolute().parent)
        with temporary(out.absolute()) as part:
            part.mkdir()
            differences: dict[str, float] = writer.write(model, part)
            make_folder(out)
            for file in part.iterdir():
                os.replace(file, out / file.name)
            remove(part)
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror or error}") from error
    return differences
