"""`make wheel`: what is in dist/ installs in a fresh environment and trains there, with the op and without it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from test_install import FOR_THE_BUILD, ROOT, environment, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler"),
]
TRAIN = """
import gfrnn, torch
torch.manual_seed(0)
layer, x = gfrnn.GFLSTM(3, 8, 2), torch.randn(12, 4, 3)
optimizer, losses = torch.optim.Adam(layer.parameters(), lr=1e-2), []
for _ in range(30):
    loss = (layer(x)[0][1:, :, :3] - x[:-1].tanh()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.8 * losses[0], losses
found, layer.backend = layer(x)[0], "reference"
assert (found - layer(x)[0]).abs().max() < 1e-6
print(gfrnn.__file__)
"""
OLDEST_GLIBC = (2, 28)  # that the wheel's name promises, and torch's own


def copy_of_the_sources(folder: Path) -> Path:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in (*FOR_THE_BUILD, "Makefile", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, folder)
    return folder


def fresh_environment(folder: Path, *install: str) -> Path:
    """A new environment with the package in it, and with the torch (and the like) that is here."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = folder / "bin/python"
    run([sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", *install])
    packages = next(folder.glob("lib/*/site-packages"))
    (packages / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")  # after pip: it is not to look there
    return python


def trains(python: Path, **variables: str) -> dict[str, object]:
    """Trains a layer with what is installed there; returns what the doctor says."""
    env, where = environment(**variables), python.parents[1]
    assert Path(run([str(python), "-c", TRAIN], env=env, cwd=where).strip()).is_relative_to(where)
    found: dict[str, object] = json.loads(run([str(python), "-m", "gfrnn", "doctor", "--json"], env=env, cwd=where))
    return found


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = copy_of_the_sources(tmp_path_factory.mktemp("wheels") / "checkout")
    words = ["make", "-C", str(checkout), "-o", "setup", f"VENV={sys.prefix}", "wheel"]
    here = ROOT / "build/audit/bin/auditwheel"
    run([*words, f"AUDITWHEEL={here}"] if here.exists() else words, env=environment(compiler=None))
    return checkout / "dist"


def test_the_wheel_for_everything_else(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*-any.whl")
    assert trains(fresh_environment(tmp_path / "venv", str(wheel)))["auto"] == "manual"
    with zipfile.ZipFile(wheel) as archive:  # a link in the sources, the file itself here
        assert archive.read("gfrnn/report/claims.yaml") == (ROOT / "results/claims.yaml").read_bytes()


def test_the_wheel_with_the_op(dist: Path, tmp_path: Path) -> None:
    kinds = sorted(re.sub(r"gfrnn-[\d.]+\d", "", path.name) for path in dist.iterdir())
    assert kinds == ["-py3-none-any.whl", "-py3-none-manylinux_2_28_x86_64.whl", ".tar.gz"]
    python = fresh_environment(tmp_path / "venv", "--find-links", str(dist), "gfrnn")  # pip takes the better one
    assert trains(python)["auto"] == "cpu"
    for instructions in ("generic", "avx2"):
        found = trains(python, GFRNN_ISA=instructions)
        assert found["op_instruction_set"] in ("generic", instructions)


def test_the_op_needs_no_newer_system_than_its_wheel_says(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*-manylinux_*.whl")
    with zipfile.ZipFile(wheel) as archive:
        op = Path(archive.extract("gfrnn/ops/cpu/_op.so", tmp_path))
    needs = subprocess.run(["objdump", "-p", str(op)], capture_output=True, text=True, check=True).stdout
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"\bGLIBC_([\d.]+)", needs)]
    assert versions and max(versions) <= OLDEST_GLIBC
    newer_than_gcc_8 = [found for found in re.findall(r"GLIBCXX_3\.4\.(\d+)", needs) if int(found) > 25]
    assert newer_than_gcc_8 == []
    assert {"libtorch_cpu.so", "libc10.so"} <= set(re.findall(r"NEEDED\s+(\S+)", needs))
