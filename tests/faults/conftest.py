"""What the fault tests share."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from runs import outcome, run_tiny


@pytest.fixture
def quick_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests without a power cut: what the kernel has is safe."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tiny run comes to when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run_tiny(folder)
    torch.set_num_threads(threads)
    return outcome(folder / "run")
