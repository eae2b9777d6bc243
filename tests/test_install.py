"""Installing where there is no compiler: slower, never broken, and it says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOR_THE_BUILD = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt")
SCRIPT = """
import gfrnn, torch
layer = gfrnn.GFLSTM(3, 4, 2)
layer(torch.randn(5, 2, 3))[0].sum().backward()
print(gfrnn.__file__)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sources alone: nothing built, and nothing will be built in ours."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in FOR_THE_BUILD:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    return folder


def environment(**more: str) -> dict[str, str]:
    """No compiler, and no say in which op is loaded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GFRNN_", "PYTHONPATH"))}
    return {**kept, "CC": "false", "CXX": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def assert_works_without_the_op(python: str, where: Path, env: dict[str, str]) -> None:
    assert Path(run([python, "-c", SCRIPT], env=env, cwd=where).strip()).is_relative_to(where)
    found = json.loads(run([python, "-m", "gfrnn", "doctor", "--json"], env=env, cwd=where))
    assert found["auto"] == "manual"
    assert not found["backends"]["cpu"]["active"]
    assert "was not built" in found["backends"]["cpu"]["why_not"][0]


def test_install_without_a_compiler(checkout: Path, tmp_path: Path) -> None:
    target = tmp_path / "packages"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", str(target)]
    run([*command, str(checkout)], env=environment())
    assert (target / "gfrnn/ops/cpu/__init__.py").exists() and (target / "gfrnn/py.typed").exists()
    assert not (target / "gfrnn/ops/cpu/_op.so").exists()
    assert_works_without_the_op(sys.executable, tmp_path, environment(PYTHONPATH=str(target)))


def test_a_required_op_that_cannot_be_built_fails(checkout: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    env = environment(GFRNN_BUILD="require")
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert "false" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_fresh_environment_without_a_compiler(checkout: Path, tmp_path: Path) -> None:
    """What a user does: a new environment, torch, then the package. Downloads torch."""
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    python = str(tmp_path / "venv/bin/python")
    install = [python, "-m", "pip", "install", "-c", str(checkout / "constraints.txt")]
    run([*install, "torch==2.13.0", "setuptools>=77", "wheel"], env=environment())
    run([*install, "--no-build-isolation", str(checkout)], env=environment())
    assert_works_without_the_op(python, tmp_path, environment())
