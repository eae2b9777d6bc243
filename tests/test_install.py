"""Installing: with the op from an sdist too; where it cannot be built slower, never broken, and the reason is kept."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOR_THE_BUILD = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt", "MANIFEST.in")
OP = Path("src/gfrnn/ops/cpu")
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


def environment(compiler: str | None = "/bin/false", **more: str) -> dict[str, str]:
    """No compiler (or the machine's own, with None), and no say in which op is loaded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GFRNN_", "PYTHONPATH"))}
    compilers = {} if compiler is None else {"CC": compiler, "CXX": compiler}
    return {**kept, **compilers, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def assert_works_without_the_op(python: str, where: Path, env: dict[str, str], why: str) -> None:
    assert Path(run([python, "-c", SCRIPT], env=env, cwd=where).strip()).is_relative_to(where)
    found = json.loads(run([python, "-m", "gfrnn", "doctor", "--json"], env=env, cwd=where))
    assert found["auto"] == "manual"
    assert not found["backends"]["cpu"]["active"]
    (reason,) = found["backends"]["cpu"]["why_not"]
    assert reason == f"the C++ op was not built with the package: {why}"
    assert why.split()[-1] in run([python, "-m", "gfrnn", "doctor"], env=env, cwd=where)


SAYS_NOTHING = "the C++ compiler /bin/false failed with exit code 1 and said: nothing"


@pytest.mark.slow  # every day: the reason is noted (below), and the package works without the op (test_doctor.py)
def test_install_without_a_compiler(checkout: Path, tmp_path: Path) -> None:
    (checkout / OP / "_op.so").write_bytes(b"what an earlier build left in the tree")
    target = tmp_path / "packages"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", str(target)]
    run([*command, str(checkout)], env=environment())
    assert (target / "gfrnn/ops/cpu/__init__.py").exists() and (target / "gfrnn/py.typed").exists()
    assert not (target / "gfrnn/ops/cpu/_op.so").exists()
    assert_works_without_the_op(sys.executable, tmp_path, environment(PYTHONPATH=str(target)), SAYS_NOTHING)


def test_the_reason_of_a_failed_build_is_noted(checkout: Path, tmp_path: Path) -> None:
    """Built in place again and again: the note of the last time is what counts."""
    complaining = tmp_path / "complaining"
    complaining.write_text("#!/bin/sh\necho In file included >&2\necho op.cpp:1: fatal error: no header >&2\nexit 3\n")
    complaining.chmod(0o755)
    build = "import runpy, sys; sys.argv = ['setup.py', '-q', 'build_ext', '--inplace']; runpy.run_path('setup.py')"
    no_torch = "import importlib.util; importlib.util.find_spec = lambda name: None; "  # as in an isolated build
    for script, compiler, why in (
        (
            no_torch + build,
            "/bin/false",
            "no torch in the build environment (install with `pip install --no-build-isolation`)",
        ),
        (build, "/bin/false", SAYS_NOTHING),
        (build, "/nowhere/c++", "no C++ compiler: /nowhere/c++ cannot be run (No such file or directory)"),
        (
            build,
            str(complaining),
            f"the C++ compiler {complaining} failed with exit code 3 and said: op.cpp:1: fatal error: no header",
        ),
    ):
        run([sys.executable, "-c", script], env=environment(compiler), cwd=checkout)
        assert (checkout / OP / "_op_build.txt").read_text() == f"{why}\n"


def test_an_object_is_made_once_and_again_after_any_change(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    build = runpy.run_path("setup.py")
    folder, made = checkout / "build/op/generic", []

    def make() -> str:
        (folder / "kernels.o").write_text("object")
        made.append(1)
        return str(folder / "kernels.o")

    def built(*how: str) -> int:
        assert build["kept"](folder, build["digest"](["c++", *how], None), make) == str(folder / "kernels.o")
        return len(made)

    assert [built("-O3"), built("-O3"), built("-O1"), built("-O3")] == [1, 1, 2, 3]
    header = checkout / OP / "gemm.h"
    header.write_text(header.read_text() + "\n")
    assert [built("-O3"), built("-O3")] == [4, 4]
    (folder / "kernels.o").unlink()
    assert built("-O3") == 5


@pytest.fixture
def sdist(checkout: Path, tmp_path: Path) -> Path:
    """Made where things lie about that belong to this machine."""
    for leftover in ("_op.so", "_op_build.txt"):
        (checkout / OP / leftover).write_bytes(b"of this machine")
    run([sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)], env=environment(), cwd=checkout)
    return next(tmp_path.glob("*.tar.gz"))


def test_an_sdist_has_all_that_the_op_is_built_from_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        inside = {str(Path(*Path(name).parts[1:])) for name in archive.getnames()}
    built = (".so", ".pyc", "_op_build.txt")
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "src/gfrnn").rglob("*") if path.is_file()}
    sources = {name for name in ours if not name.endswith(built)}
    assert {str(OP / "op.cpp"), str(OP / "gemm.h")} < sources
    assert sources <= inside
    assert [name for name in inside if name.endswith(built)] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler")
def test_a_wheel_from_the_sdist_has_the_op(sdist: Path, tmp_path: Path) -> None:
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    run([*wheel, "--no-cache-dir", "-w", str(tmp_path / "wheels"), str(sdist)], env=environment(compiler=None))
    with zipfile.ZipFile(next((tmp_path / "wheels").glob("*.whl"))) as archive:
        archive.extractall(tmp_path / "packages")
        native = {Path(name).name for name in archive.namelist() if name.startswith("gfrnn/ops/cpu/")}
    assert native == {"__init__.py", "README.md", "_op.so"}
    env = environment(PYTHONPATH=str(tmp_path / "packages"))
    assert Path(run([sys.executable, "-c", SCRIPT], env=env, cwd=tmp_path).strip()).is_relative_to(tmp_path)
    found = json.loads(run([sys.executable, "-m", "gfrnn", "doctor", "--json"], env=env, cwd=tmp_path))
    assert found["auto"] == "cpu"


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
    assert_works_without_the_op(python, tmp_path, environment(), SAYS_NOTHING)
