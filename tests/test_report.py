"""`gfrnn report`: what the page and the Markdown show, what is missing, and that the published one is up to date."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reports import write_programs, write_run
from runs import files

from gfrnn.cli import main
from gfrnn.errors import UsageError
from gfrnn.report import build as building
from gfrnn.report import gates, grids, heatmap, statistics
from gfrnn.report.build import Report, build
from gfrnn.report.document import Document, Paragraph, Table
from gfrnn.report.markdown import mark, markdown
from gfrnn.report.page import INK, page

RESULTS = Path(__file__).parents[1] / "results"
Capture = pytest.CaptureFixture[str]


def prepare(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """No data of the machine's, few draws and few characters: the sums are in test_statistics.py and test_texts.py."""
    patch.setenv("GFRNN_CACHE", str(folder / "cache"))
    patch.delenv("GFRNN_DATA", raising=False)
    patch.setattr(statistics, "RESAMPLES", 50)
    for module in (grids, heatmap):
        patch.setattr(module, "OF_A_CELL", 50)
    patch.setattr(gates, "CHARACTERS", 30_000)


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two seeds of two rows, one of a third; the gates of the model in the package have been watched."""
    prepare(monkeypatch, tmp_path)
    return write_campaign(tmp_path / "campaign")


def write_campaign(folder: Path) -> Path:
    for seed, (stacked, gated) in enumerate(((1.80, 1.79), (1.81, 1.799)), start=1):
        write_run(folder / f"s{seed}", "modern-stacked-lstm", seed, stacked)
        write_run(folder / f"g{seed}", "modern-gated-lstm", seed, gated)
    write_run(folder / "single", "modern-single-lstm", 1, 1.9)
    shutil.copy(RESULTS / "gates.json", folder)
    return folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Report]:
    """The campaign and a pair of program models, the folder of the report on them, and the report with its figures."""
    folder = tmp_path_factory.mktemp("drawn")
    campaign, out = write_campaign(folder / "campaign"), folder / "out"
    write_programs(campaign / "ps", "programs-stacked-lstm", 2)
    write_programs(campaign / "pg", "programs-gated-lstm", 3)
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, folder)
        return campaign, out, build([campaign], out)


@pytest.fixture
def nothing_to_draw_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UsageError("drawing needs matplotlib")

    monkeypatch.setattr(heatmap, "drawing", missing)


class Reader(HTMLParser):
    """Which elements and names there are, and whether every element that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.names: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.names += [value or "" for name, value in attrs if name == "id"]
        found = [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.fetched += [value for value in found if not value.startswith(("#", "data:"))]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def table_row(text: str, model: str) -> list[str]:
    """Of the tables of language modelling."""
    own = [line for line in text.splitlines() if line.startswith(f"| {model} |")]
    (line,) = [line for line in own if "gfrnn train" in line and "programs-" not in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_has_its_mean_interval_and_seeds_and_a_missing_one_its_command(drawn: tuple[Path, Path, Report]) -> None:
    _, out, report = drawn
    text = (out / "REPORT.md").read_text()
    _, units, paper, test, interval, behind, seeds, valid, _, command = table_row(text, "LSTM, gated feedback")
    assert (units, paper, test, seeds, valid) == ("3 x 140", "1.842", "**1.794**", "2", "2.000")
    assert behind == "-0.011 (-0.017 to -0.004)"  # -0.010 and -0.011, and 12.7 standard errors
    assert re.fullmatch(r"1\.7\d\d to 1\.8\d\d", interval)
    assert command == "`gfrnn train modern-gated-lstm`"
    assert table_row(text, "LSTM, single layer")[3:7] == ["1.900", "", "+0.100", "1"]  # one seed: no interval
    assert table_row(text, "LSTM, stacked")[5] == ""
    assert table_row(text, "GRU, gated feedback L") == [
        *("GRU, gated feedback L", "3 x 228", "1.813"),
        *[""] * 6,
        "`gfrnn train modern-gated-L-gru`",
    ]
    assert "Learning rate: 0.008 for every row." in text
    assert len(re.findall(r"^\| \d+ \| ", text.split("## Language modelling")[0], flags=re.MULTILINE)) == 20
    assert all(file.stat().st_size > 500 for file in report.files)


def test_the_page_stands_alone(drawn: tuple[Path, Path, Report]) -> None:
    _, out, report = drawn
    text = (out / "report.html").read_text()
    seen = Reader(text)
    assert seen.open == []
    assert seen.fetched == []
    assert "script" not in seen.elements
    assert seen.elements.count("svg") == 7  # gains, a curve, places, two heat maps, two of the gates
    assert len(seen.names) == len(set(seen.names))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(seen.names)
    assert "prefers-color-scheme: dark" in text and "@page" in text
    assert INK not in text.split("</style>")[1]  # figures are drawn in the page's own
    said = re.sub(r"<[^>]*>", "", text)
    for claim, _ in report.judged:
        assert claim.claim in said


@pytest.mark.slow  # every day the published report comes out as it was
def test_the_same_twice(drawn: tuple[Path, Path, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(monkeypatch, tmp_path)
    campaign, out, _ = drawn
    build([campaign], tmp_path / "again")
    assert files(tmp_path / "again") == files(out)


@pytest.mark.usefixtures("nothing_to_draw_with")
def test_without_matplotlib_the_rest_is_there(campaign: Path, tmp_path: Path) -> None:
    report = build([campaign], tmp_path / "out")
    text = (tmp_path / "out/REPORT.md").read_text()
    assert building.NO_DRAWING in text
    assert [file.name for file in report.files] == ["REPORT.md", "report.html"]
    assert "| LSTM, gated feedback |" in text


@pytest.mark.usefixtures("nothing_to_draw_with")
def test_what_is_left_out_and_who_is_credited_is_said(campaign: Path, tmp_path: Path) -> None:
    write_run(campaign / "elsewhere", "modern-gated-gru", 1, 1.9, machine={"cpu": "Far CPU", "threads": 2})
    write_run(campaign / "trial", "modern-gated-lstm", 1, 1.9, learning_rate=0.5)
    build([campaign], tmp_path / "out")
    text = (tmp_path / "out/REPORT.md").read_text()
    assert "- trial: a trial: no other row" in text
    assert "With credit: elsewhere was trained elsewhere, on Far CPU" in text


@pytest.mark.usefixtures("nothing_to_draw_with")
def test_the_command(campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    campaign.rename(tmp_path / "runs/campaign")
    assert main(["report", "--quiet"]) == 0  # the campaign that is there
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("  1  undecided")
    assert out[-2:] == ["report/REPORT.md", "report/report.html"]
    assert main(["report", "runs", "--json", "--out", "again"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [claim["id"] for claim in found["claims"]] == list(range(1, 21))
    assert len(found["runs"]) == 5


def test_bad_input(campaign: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "other/run", "modern-gated-gru", 1, 1.9, text="9" * 64)
    for words, code, said in (
        ([str(campaign), "--out", "file"], 2, "--out file is a file"),
        (["typo"], 3, "typo is no folder"),
        (["empty"], 3, "no run to report on"),
        ([str(campaign), "other"], 3, "sha256 9999999999999999"),
    ):
        assert main(["report", *words]) == code
        out, error = capsys.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        assert said in error
    assert not (tmp_path / "report").exists()


def test_marks_and_what_only_looks_like_them() -> None:
    table = Table("a | b", ["x"], ["text"], [["`a|b` <i> **bold**\nnext"]])
    document = Document("T", [Paragraph("a_b < `c_d`"), table])
    text = markdown(document, Path("."))
    assert "a\\_b \\< `c_d`" in text
    assert "`a|b` \\<i\\> **bold**<br>next" in text
    html = page(document)
    assert "a_b &lt; <code>c_d</code>" in html
    assert "<code>a|b</code> &lt;i&gt; <strong>bold</strong><br>next" in html
    assert mark("<a><b", ">x</b> <c> & </d>", lambda kind, tag: f"[{kind}:{tag}]") == (
        "[closed:&gt;]x[closing:&lt;/b&gt;] [left open:&lt;c&gt;] &amp; [stray:&lt;/d&gt;]"
    )


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("svg_alone")
def test_the_published_report_is_what_its_runs_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gfrnn report results --out results` writes it. Figures are compared by their words, not matplotlib's shapes."""
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GFRNN_DATA", raising=False)
    build([RESULTS], tmp_path)
    assert (tmp_path / "REPORT.md").read_text() == (RESULTS / "REPORT.md").read_text()
    new, old = ({file.name: words_of(file) for file in folder.glob("figures/*.svg")} for folder in (tmp_path, RESULTS))
    assert new == old
    assert set(re.findall(r"\(figures/([^)]*)\)", (RESULTS / "REPORT.md").read_text())) == set(old)


def words_of(file: Path) -> list[str]:
    """What stands in a figure that matplotlib drew."""
    return re.findall(r"<!-- (.*?) -->", file.read_text(encoding="utf-8"))
