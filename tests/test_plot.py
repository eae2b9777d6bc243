"""`gfrnn plot`: which runs are drawn, under which names, and what of the validation split they show."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import matplotlib
import pytest

matplotlib.use("Agg")
from matplotlib import colors, pyplot

from gfrnn.cli import main
from gfrnn.report import curves

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
Capture = pytest.CaptureFixture[str]


def write_run(folder: Path, final: float | None = None, **validation: Any) -> Path:
    """A run folder with three validations and nothing else."""
    folder.mkdir(parents=True)
    records: list[dict[str, Any]] = [{"kind": "start", "step": 0}]
    for step in (1, 2, 3):
        where = {"seconds": 60.0 * step, "characters": 1_000_000 * step, "best": step < 3}
        records.append({"kind": "valid", "step": step, "bpc": 3.0 - step / 10, **where, **validation})
    if final is not None:
        records.append({"kind": "final", "step": 3, "bpc": final, "characters_validated": 5_000_000})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture
def figure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The figure that `curves.plot` draws, still open; call it for that."""
    made: list[Any] = []
    monkeypatch.setattr(pyplot, "close", made.append)
    return lambda: made[-1]


def legend_texts(figure: Any) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_the_line_of_the_results_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    page = (RESULTS / "enwik8-10M" / "README.md").read_text()
    (line,) = re.findall(r"`gfrnn (plot [^`]*)`", page)
    monkeypatch.chdir(ROOT)
    words = [path for word in shlex.split(line) for path in (sorted(map(str, Path().glob(word))) or [word])]
    assert any(word.endswith("modern-settings.png") for word in words)  # a shell finds these files, too
    assert main([*words, "--out", str(tmp_path / "figure")]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(tmp_path / "figure.svg"), str(tmp_path / "figure.png")]
    assert "skipped results/enwik8-10M/modern-settings.png: it is not a run folder\n" in err
    drawn = (tmp_path / "figure.svg").read_text()
    assert all(f"<!-- modern-{kind}-lstm -->" in drawn for kind in ("single", "stacked", "feedback", "gated"))


def test_every_published_figure_names_the_runs_beside_it() -> None:
    """And is what `gfrnn plot` draws of them today, apart from matplotlib's own changes of shape."""
    alone = [folder for folder in RESULTS.iterdir() if (folder / "curves.svg").exists()]
    assert len(alone) >= 3
    for folder in alone:
        runs = (
            [folder]
            if (folder / "metrics.jsonl").exists()
            else [path.parent for path in folder.glob("*/metrics.jsonl")]
        )
        comments = set(re.findall(r"<!-- (.*?) -->", (folder / "curves.svg").read_text()))
        assert {run.name for run in runs} <= comments, folder
        others = {path.parent.name for path in RESULTS.rglob("metrics.jsonl")} - {run.name for run in runs}
        assert not others & comments, folder


def test_what_is_no_run_is_named_and_skipped_and_what_does_not_exist_refused(tmp_path: Path, capsys: Capture) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "notes.txt").touch()
    assert main(["plot", str(tmp_path / "notes.txt"), str(run), "--out", str(tmp_path / "x")]) == 0
    assert capsys.readouterr().err == f"skipped {tmp_path / 'notes.txt'}: it is not a run folder\n"
    for wrong, sentence in ((["notes.txt"], "is not a run folder"), (["run", "typo"], "typo does not exist")):
        assert main(["plot", *(str(tmp_path / name) for name in wrong)]) == 3
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert sentence in err


def test_sixteen_runs_are_told_apart_and_none_is_covered(tmp_path: Path, figure: Any) -> None:
    runs = [write_run(tmp_path / f"run-{n}") for n in range(16)]
    curves.plot(runs, tmp_path / "x")
    panel = figure().axes[0]
    seen = {(colors.to_hex(line.get_color()), str(line._dash_pattern), line.get_marker()) for line in panel.get_lines()}
    assert len(seen) == 16
    for kind in range(3):  # any two that share one of the three differ in the two others
        assert len({tuple(part for i, part in enumerate(look) if i != kind) for look in seen}) == 16
    assert legend_texts(figure()) == [run.name for run in runs]
    (legend,) = figure().legends
    figure().canvas.draw()
    box = legend.get_window_extent()
    assert all(not box.overlaps(panel.get_window_extent()) for panel in figure().axes)
    assert box.x0 >= 0
    assert box.x1 <= figure().bbox.x1
    assert panel.get_window_extent().height > 1.5 * figure().dpi


def test_a_link_has_its_own_name_and_a_run_named_twice_is_drawn_once(
    tmp_path: Path, figure: Any, capsys: Capture
) -> None:
    run = write_run(tmp_path / "real")
    write_run(tmp_path / "_$5 and $6")
    (tmp_path / "link").symlink_to(run)
    curves.plot([tmp_path / "link", tmp_path / "_$5 and $6"], tmp_path / "x")
    assert legend_texts(figure()) == ["link", r"_\$5 and \$6"]
    again = [str(run), f"{tmp_path}/./real/", str(tmp_path / "link"), "--out", str(tmp_path / "y")]
    assert main(["plot", *again]) == 0
    assert legend_texts(figure()) == ["real"]


def test_a_part_of_the_split_is_said_and_the_whole_marked(tmp_path: Path, figure: Any) -> None:
    part = write_run(tmp_path / "part", final=2.9, characters_validated=250_000)
    curves.plot([part], tmp_path / "x")
    panel = figure().axes[0]
    assert panel.get_ylabel() == "validation bits per character\n(first 250,000 characters)"
    _, star = panel.get_lines()
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([2.0], [2.9])  # where the best model was found
    assert legend_texts(figure()) == ["part", curves.WHOLE]
    whole = write_run(tmp_path / "whole", characters_validated=5_000_000)
    curves.plot([part, whole], tmp_path / "x")
    assert figure().axes[0].get_ylabel() == "validation bits per character"
    assert legend_texts(figure()) == ["part (first 250,000 characters)", "whole", curves.WHOLE]
    curves.plot([whole], tmp_path / "x")
    assert legend_texts(figure()) == ["whole"]


def test_a_run_that_goes_on_says_its_part_too(tmp_path: Path, figure: Any) -> None:
    run = write_run(tmp_path / "run", characters_validated=250_000)
    shutil.copy(RESULTS / "enwik8-10M" / "modern-gated-lstm" / "config.yaml", run)
    curves.plot([run], tmp_path / "x")
    assert "first 250,000 characters" in figure().axes[0].get_ylabel()
