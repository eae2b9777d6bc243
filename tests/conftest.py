"""The same machine for every test: one thread, a fixed seed, no left-over global switches."""

import gc
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cases
import hypothesis
import pytest
import torch
from campaigns import Trained, make_finished, tiny_plan
from runs import outcome, run_tiny

from gfrnn.progress import LOG

# Shapes are drawn the same way on every run, and nothing is judged by the clock.
hypothesis.settings.register_profile("gfrnn", derandomize=True, deadline=None, max_examples=15, database=None)
hypothesis.settings.load_profile("gfrnn")

# On some CPUs oneDNN, with which torch multiplies in bfloat16, fails at AMX, and at everything after that. It reads the
# environment at its first work. Ours has AMX of its own.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
torch.nn.LSTM(4, 3)(torch.zeros(2, 2, 4))

# Whoever waits for the disk is safe from a power cut, of which faults/disk.py knows without one.
os.fsync = os.fstat  # type: ignore[assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A backend is not tested on a network that it declares not to have; test_records.py sees it decline."""
    items[:] = [item for item in items if not declined(getattr(getattr(item, "callspec", None), "params", {}))]


def pytest_collection_finish() -> None:
    """What thousands of tests and modules are made of is not looked through for garbage again and again."""
    gc.freeze()


def declined(params: dict[str, Any]) -> bool:
    network = params.get("case", params.get("problem"))
    unit, wiring = (getattr(network, name, params.get(name)) for name in ("unit", "wiring"))
    if params.get("backend") not in cases.backends() or unit not in cases.UNITS:
        return False
    wirings = [wiring] if wiring in cases.WIRINGS else cases.WIRINGS
    normalise = getattr(network, "normalise", params.get("normalise", False))
    return all(params["backend"] not in cases.backends_of(unit, one, normalise) for one in wirings)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """However the tests were called: what several of them share is made before the first of them begins."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_ground() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.default_generator.manual_seed(0)  # torch.manual_seed writes the whole stack down, three times
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def nan_in_fresh_memory() -> Iterator[None]:
    """`torch.empty` and its kin hand out NaN (the largest value for integers), so reading it shows."""
    torch._C._set_deterministic_algorithms(True, warn_only=False)  # torch's own function imports the whole compiler
    was = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = was
    torch._C._set_deterministic_algorithms(False, warn_only=False)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the package's log is told. (pytest's own fixture costs every test a millisecond, asked for or not.)"""
    words: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: words.append(record.getMessage()))
    monkeypatch.setattr(LOG, "handlers", [*LOG.handlers, handler])
    return words


@pytest.fixture
def count_orthogonal(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Grows by one block at every call of `nn.init.orthogonal_`, the expensive part of a layer's start."""
    made: list[torch.Tensor] = []
    original = torch.nn.init.orthogonal_

    def counted(block: torch.Tensor) -> torch.Tensor:
        made.append(block)
        return original(block)

    monkeypatch.setattr(torch.nn.init, "orthogonal_", counted)
    return made


@pytest.fixture
def svg_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a figure's two files the PNG stays empty: for large figures of which the SVG is looked at."""
    from matplotlib.figure import Figure

    draw = Figure.savefig

    def savefig(figure: Figure, path: Path, **options: Any) -> None:
        if path.suffix == ".png":
            path.touch()
        else:
            draw(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tiny run comes to when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_tiny(folder)
    return outcome(folder / "run")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Three planned runs, and a folder with each of them trained and evaluated."""
    folder = tmp_path_factory.mktemp("trained")
    plans = tiny_plan(folder, ["ablation"])
    for planned in plans:
        make_finished(folder, planned)
    return plans, folder


@pytest.fixture
def one(trained: Trained, tmp_path: Path) -> tuple[Path, Any]:
    """A copy of a finished run, which may be damaged, and what was planned there."""
    planned = trained[0][0]
    return Path(shutil.copytree(trained[1] / planned.name, tmp_path / planned.name)), planned


@pytest.fixture
def survived(request: pytest.FixtureRequest) -> Callable[[int, int, str], None]:
    """Call `survived(20, 20, "kills")` at the end of a test of faults: asserted, and told at the end of the session."""

    def tell(count: int, of: int, faults: str) -> None:
        request.node.user_properties.append(("survived", f"survived {count:,} of {of:,} {faults}"))
        assert count == of

    return tell


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = (report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, []))
    told = [text for report in reports for name, text in report.user_properties if name == "survived"]
    if told:
        terminalreporter.section("faults")
        for text in told:
            terminalreporter.write_line(text)
