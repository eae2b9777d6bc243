"""The notebook in examples/: its cells run in order, and it is kept without outputs."""

from __future__ import annotations

import contextlib
import io
import json
import time
from pathlib import Path
from typing import Any

import documents
import pytest
from documents import ROOT

NOTEBOOK = json.loads((ROOT / "examples/five_minutes.ipynb").read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
TEXT = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "markdown"]


def test_it_is_kept_without_outputs_and_every_cell_is_python() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    for cell in NOTEBOOK["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)
    for cell in CODE:
        compile(cell, "a cell", "exec")
    assert sum(len(cell.splitlines()) for cell in CODE) < 100


def test_what_it_names_is_there(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n\n".join(TEXT), encoding="utf-8")
    named = [span for span in documents.read(page).spans if span.startswith("gfrnn ")]
    assert named == ["gfrnn explore --open", "gfrnn train --help"]
    for target in ("docs/api.md", "results/REPORT.md"):
        assert f"(../{target})" in page.read_text(encoding="utf-8") and (ROOT / target).exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib, the extra [report]")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GFRNN_DATA", raising=False)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, start = io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(printed):
        for number, cell in enumerate(CODE, start=1):
            exec(compile(cell, f"cell {number}", "exec"), namespace)
    assert time.process_time() - start < 600  # five minutes of two cores
    assert namespace["after"][-1] < namespace["after"][0] / 2 and namespace["before"][-1] < namespace["before"][0] / 2
    assert namespace["result"]["bpc"] < 3.5
    assert namespace["g"].shape == (len(namespace["text"]), 3, 3) and 0 <= namespace["g"].min() < namespace["g"].max()
    assert "the packaged model: mean gate" in printed.getvalue()
    matplotlib.pyplot.close("all")
