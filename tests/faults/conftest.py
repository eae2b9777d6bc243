"""What the fault tests share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def quick_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests without a power cut: what the kernel has is safe."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
