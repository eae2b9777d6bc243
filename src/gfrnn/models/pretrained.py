"""Folders that hold a model: config.json, model.safetensors, and the manifest with their checksums."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gfrnn.errors import DataError, nearest
from gfrnn.files import read_small, sync_folder
from gfrnn.tensorfile import (
    MANIFEST,
    TENSORS_LIMIT,
    pack_json,
    pack_tensors,
    read_folder,
    unpack_json,
    unpack_tensors,
    write_folder,
)

FILES = ("model.safetensors", "config.json")
M = TypeVar("M", bound="Pretrained")


class Pretrained(nn.Module):
    """A model that can be saved to a folder and found again.

    A subclass has `config`, a JSON-able mapping of its constructor's arguments, and takes them back in `from_config`.
    """

    @property
    def config(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_config(cls: type[M], config: dict[str, Any], device: str | None = None) -> M:
        raise NotImplementedError

    def full_config(self) -> dict[str, Any]:
        """What config.json holds: the class's name and its arguments."""
        return {"architecture": type(self).__name__, **self.config}

    def save_pretrained(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write the model to `folder` (in another precision if `dtype` is given)."""
        tensors = {name: t if dtype is None else t.to(dtype) for name, t in self.state_dict().items()}
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_folder(
            folder / ".part", {"model.safetensors": pack_tensors(tensors), "config.json": pack_json(self.full_config())}
        )
        for name in (*FILES, MANIFEST):
            (folder / ".part" / name).replace(folder / name)
        (folder / ".part").rmdir()
        sync_folder(folder)

    @classmethod
    def from_pretrained(cls: type[M], folder_or_name: str | Path) -> M:
        """A model from a folder written by `save_pretrained`, from a run folder (its best), or from the package."""
        folder = find(folder_or_name)
        config, tensors = read_model(folder)
        architecture = config.pop("architecture", None)
        config.pop("training", None)
        if architecture != cls.__name__:
            raise DataError(f"{folder} holds a {architecture}, not a {cls.__name__}")
        layers = config.get("num_layers")
        if isinstance(layers, int) and layers > len(tensors):
            raise DataError(f"{folder}: weights and config.json disagree: {layers} layers in {len(tensors)} tensors")
        try:
            model = cls.from_config(config, device="meta")
        except (TypeError, ValueError, KeyError, OverflowError, RuntimeError) as error:
            raise DataError(f"{folder / 'config.json'} describes no {cls.__name__}: {error}") from error
        difference = differences({k: tuple(v.shape) for k, v in model.state_dict().items()}, tensors)
        if difference:
            raise DataError(f"{folder}: weights and config.json disagree: {difference}")
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
        return model.requires_grad_().eval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards the model is as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and the tensors of a model folder, verified where there is a manifest."""
    if (folder / MANIFEST).exists():
        files = read_folder(folder, FILES)
    else:
        files = {name: read_small(folder / name, TENSORS_LIMIT) for name in FILES}
    config = unpack_json(files["config.json"], folder / "config.json")
    return config, unpack_tensors(files["model.safetensors"], folder / "model.safetensors")


def model_inside(folder: Path) -> Path | None:
    """The model folder that a folder is or, being a run folder, has."""
    candidates = (folder, folder / "best", folder / "best.old")
    return next((candidate for candidate in candidates if (candidate / "model.safetensors").exists()), None)


def find(folder_or_name: str | Path) -> Path:
    """The model folder meant by a folder, a run folder, or the name of a model in the package."""
    folder = Path(folder_or_name)
    inside = model_inside(folder)
    if inside is not None:
        return inside
    packaged = resources.files("gfrnn").joinpath("pretrained")
    names = [entry.name for entry in packaged.iterdir() if entry.is_dir()] if packaged.is_dir() else []
    if str(folder_or_name) in names:
        return Path(str(packaged.joinpath(str(folder_or_name))))
    if folder.is_dir():
        started = (folder / "config.yaml").exists()
        why = (
            "a run without a model (none was validated yet, or it was published without its weights)"
            if started
            else "a folder without a model (no best/, no model.safetensors)"
        )
        raise DataError(f"{folder} is {why}")
    raise DataError(
        f"{folder_or_name} is neither a folder nor a model in the package{nearest(str(folder_or_name), names)}"
    )


def differences(shapes: dict[str, tuple[int, ...]], tensors: dict[str, Tensor]) -> str:
    """What tensors differ from the shapes expected, in words; empty when none does."""
    said = [f"{name} is missing" for name in shapes if name not in tensors]
    said += [f"{name} is unexpected" for name in tensors if name not in shapes]
    said += [
        f"{name} is {tuple(tensors[name].shape)} instead of {shape}"
        for name, shape in shapes.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    return "; ".join(said[:4]) + (f"; and {len(said) - 4} more" if len(said) > 4 else "")
