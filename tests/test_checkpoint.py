"""Checkpoints: what is saved comes back, damage is seen. tests/faults has the crashes."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
import torch

from gfrnn.errors import DataError, UsageError
from gfrnn.storage import tensorfile
from gfrnn.training import checkpoint, runlog
from gfrnn.training.checkpoint import Checkpoints, Snapshot, lock


def snapshot(step: int) -> Snapshot:
    weights = {"w": torch.full((3,), float(step)), "b": torch.arange(step + 1)}
    return Snapshot(step, weights, {"architecture": "X"}, {"rng": torch.get_rng_state()}, {"best": 0.1 + step})


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    checkpoints.save(snapshot(3))
    found = checkpoints.latest()
    assert found is not None
    assert (found.step, found.config, found.counters) == (3, {"architecture": "X"}, {"step": 3, "best": 3.1})
    assert torch.equal(found.model["b"], torch.arange(4))
    assert torch.equal(found.tensors["rng"], torch.get_rng_state())
    assert sorted(path.name for path in (tmp_path / "checkpoints" / "step-3").iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
        "train.json",
        "train.safetensors",
    ]
    assert (tmp_path / "LATEST").read_text() == "step-3\n"


def test_the_last_k_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(6):
        checkpoints.save(snapshot(step), best_step=1 if step else None)
    assert checkpoints.steps() == [1, 4, 5]


def test_a_damaged_checkpoint_is_reported_and_the_older_one_is_taken(tmp_path: Path) -> None:
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, report=said.append)
    checkpoints.save(snapshot(1))
    checkpoints.save(snapshot(2))
    (tmp_path / "checkpoints/step-2/train.json").write_text("{}")
    found = checkpoints.latest()
    assert found is not None
    assert found.step == 1
    assert len(said) == 1
    assert "step-2" in said[0]
    assert "sha256" in said[0]
    (tmp_path / "checkpoints/step-1/manifest.json").unlink()
    with pytest.raises(DataError, match="every checkpoint is damaged"):
        checkpoints.latest()


def test_no_link_no_stranger_and_no_pickle_gets_in(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    folder = checkpoints.save(snapshot(1))
    outside = tmp_path / "outside"
    shutil.move(folder / "train.json", outside)
    (folder / "train.json").symlink_to(outside)
    with pytest.raises(DataError, match="symbolic link"):
        checkpoints.load(1)
    shutil.rmtree(folder)
    tensorfile.write_folder(folder, dict.fromkeys((*checkpoint.CHECKPOINT_FILES, "../evil"), b""))
    with pytest.raises(DataError, match="must list"):
        checkpoints.load(1)
    shutil.rmtree(folder)
    fired = tmp_path / "fired"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(fired),)

    contents = {"train.json": b'{"step": 1}', "config.json": b"{}"}
    for name in ("model.safetensors", "train.safetensors"):
        contents[name] = pickle.dumps(Evil())
    tensorfile.write_folder(folder, contents)
    with pytest.raises(DataError, match="is not a safetensors file"):
        checkpoints.load(1)
    assert not fired.exists()


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from gfrnn.training.checkpoint import lock; lock(Path({str(tmp_path)!r}))"
    with lock(tmp_path):
        with pytest.raises(UsageError, match=f"in use by another process .pid {os.getpid()}"):
            lock(tmp_path)
        other = forked.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert f"pid {os.getpid()}" in other.stderr
    lock(tmp_path).close()


def test_metrics_survive_a_torn_line_and_forget_what_was_done_again(tmp_path: Path) -> None:
    log = runlog.RunLog(tmp_path)
    for step in (1, 2, 3):
        log.write("train", step, nats=step / 3)
    log.close()
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind": "tra')
    assert [record["step"] for record in runlog.read_metrics(tmp_path)] == [1, 2, 3]
    log = runlog.RunLog(tmp_path)
    log.write("resume", 1)
    log.write("train", 2, nats=0.5)
    log.close()
    kinds = [(record["kind"], record["step"]) for record in runlog.read_metrics(tmp_path)]
    assert kinds == [("train", 1), ("resume", 1), ("train", 2)]
    assert path.read_bytes().count(b"\n") == 5
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(DataError, match=r"metrics.jsonl: line 1 is damaged"):
        runlog.read_metrics(tmp_path)
    with pytest.raises(DataError, match="is not a run folder"):
        runlog.read_metrics(tmp_path / "nowhere")


def test_the_environment_is_written_down(tmp_path: Path) -> None:
    runlog.write_environment(tmp_path)
    assert torch.__version__ in (tmp_path / "env.json").read_text()
    assert runlog.environment()["threads"] == torch.get_num_threads()
