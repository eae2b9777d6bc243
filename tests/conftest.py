"""The same machine for every test: one thread, a fixed seed, no left-over global switches."""

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import torch
from runs import outcome, run_tiny

# Shapes are drawn the same way on every run, and nothing is judged by the clock.
hypothesis.settings.register_profile("gfrnn", derandomize=True, deadline=None, max_examples=15, database=None)
hypothesis.settings.load_profile("gfrnn")


@pytest.fixture(autouse=True)
def _fixed_ground() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def nan_in_fresh_memory() -> Iterator[None]:
    """`torch.empty` and its kin hand out NaN (the largest value for integers), so reading it shows."""
    torch.use_deterministic_algorithms(True)
    was = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = was
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tiny run comes to when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run_tiny(folder)
    torch.set_num_threads(threads)
    return outcome(folder / "run")


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
