"""Folders that hold a model: config.json, model.safetensors, and the manifest with their checksums."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gfrnn.errors import DataError, nearest
from gfrnn.storage.files import read_small
from gfrnn.storage.run_folder import CONFIG, MODEL, MODEL_CONFIG, MODEL_FILES, file_in, has_file, model_inside
from gfrnn.storage.tensorfile import (
    MANIFEST,
    TENSORS_LIMIT,
    differences,
    pack_json,
    pack_tensors,
    read_folder,
    replace_files,
    unpack_json,
    unpack_tensors,
)

SPOKEN = {"CharLM": "a text model (CharLM)", "Seq2Seq": "a program model (Seq2Seq)"}
PACKAGED = "gf-lstm-enwik8"  # the model that comes with the package
M = TypeVar("M", bound="Pretrained")
R = TypeVar("R")


class Pretrained(nn.Module, ABC):
    """A model that can be saved to a folder and found again.

    A subclass has `config`, a JSON-able mapping of its constructor's arguments, and takes them back in `from_config`.
    """

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_config(cls: type[M], config: dict[str, Any], device: str | None = None) -> M: ...

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def full_config(self) -> dict[str, Any]:
        """What config.json holds: the class's name and its arguments."""
        return {"architecture": type(self).__name__, **self.config}

    def save_pretrained(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write the model to `folder`, in its own precision or in `dtype`.

        A model that is there already is replaced as a whole, whenever the machine stops; other files stay.
        """
        tensors = {name: t if dtype is None else t.to(dtype) for name, t in self.state_dict().items()}
        replace_files(Path(folder), {MODEL: pack_tensors(tensors), MODEL_CONFIG: pack_json(self.full_config())})

    def start_from(self, other: "Pretrained") -> None:
        """Take over the weights of a model of the same architecture."""
        self.load_state_dict(other.state_dict())

    @classmethod
    def from_pretrained(cls: type[M], folder_or_name: str | Path) -> M:
        """A model from a folder written by `save_pretrained`, from a run folder (its best), or from the package.

        float64 stays float64; everything else, weights stored in 16 bits too, becomes float32.
        """
        folder = find(folder_or_name)
        config, tensors = read_model(folder)
        architecture = config.pop("architecture", None)
        config.pop("training", None)
        if architecture != cls.__name__:
            raise DataError(f"{folder} holds {SPOKEN.get(architecture, architecture)}, not {SPOKEN[cls.__name__]}")
        layers = config.get("num_layers")
        if isinstance(layers, int) and layers > len(tensors):
            raise DataError(f"{folder}: weights and config.json disagree: {layers} layers in {len(tensors)} tensors")
        try:
            model = cls.from_config(config, device="meta")
        except (TypeError, ValueError, KeyError, OverflowError, RuntimeError) as error:
            raise DataError(f"{folder / MODEL_CONFIG} describes no {cls.__name__}: {error}") from error
        dtype = torch.float64 if all(tensor.dtype == torch.float64 for tensor in tensors.values()) else torch.float32
        numbers = {name: tensor.to(dtype) for name, tensor in tensors.items() if tensor.is_floating_point()}
        expected = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
        difference = differences(expected, {**tensors, **numbers})
        if difference:
            raise DataError(f"{folder}: weights and config.json disagree: {difference}")
        model.load_state_dict(numbers, assign=True)
        return model.requires_grad_().eval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards the model is as it was, each of its modules."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and the tensors of a model folder, verified where there is a manifest."""

    def read() -> dict[str, bytes]:
        if has_file(folder, MANIFEST):
            return read_folder(folder, MODEL_FILES)
        return {name: read_small(folder / name, TENSORS_LIMIT) for name in MODEL_FILES}

    files = while_others_write(folder, read)
    config = unpack_json(files[MODEL_CONFIG], folder / MODEL_CONFIG)
    return config, unpack_tensors(files[MODEL], folder / MODEL)


def read_config(folder: Path) -> dict[str, Any]:
    content = while_others_write(folder, lambda: read_small(file_in(folder, MODEL_CONFIG)))
    return unpack_json(content, folder / MODEL_CONFIG)


def while_others_write(folder: Path, read: Callable[[], R]) -> R:
    """What `read` finds in a model folder, read again where somebody saved another model meanwhile."""
    while True:
        before = whereabouts(folder)
        try:
            return read()
        except DataError:
            if whereabouts(folder) == before:
                raise


def whereabouts(folder: Path) -> list[tuple[Path, int, int]]:
    """Where the files of a model are, and which they are."""
    found = []
    for name in (*MODEL_FILES, MANIFEST):
        with suppress(OSError):
            path = file_in(folder, name)
            about = path.lstat()
            found.append((path, about.st_ino, about.st_mtime_ns))
    return found


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
        started = (folder / CONFIG).exists()
        why = (
            "a run without a model (none was validated yet, or it was published without its weights)"
            if started
            else "a folder without a model (no best/, no model.safetensors)"
        )
        raise DataError(f"{folder} is {why}")
    raise DataError(
        f"{folder_or_name} is neither a folder nor a model in the package{nearest(str(folder_or_name), names)}"
    )
