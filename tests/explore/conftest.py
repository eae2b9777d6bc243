"""One browser for all tests of the page, and the pages they open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, Page, executable
from using import tiny_model

from gfrnn.explore.pack import load, packed
from gfrnn.explore.page import page
from gfrnn.models import CharLM

PACKAGED = "gf-lstm-enwik8"
ROOT = Path(__file__).parents[2]
AXE = ROOT / "build/browser/node_modules/axe-core/axe.min.js"
Opened = Callable[..., Page]


def missing(what: str) -> None:
    """Tests that need what is not there are skipped, and fail where it must be there."""
    sentence = f"{what}: `make browser` gets it"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(sentence)
    pytest.skip(sentence)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = executable()
    if path is None:
        missing("there is no Chromium to open the page in")
    assert path is not None
    browser = Browser(path)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.exists():
        missing("axe-core is not in build/browser")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def model() -> CharLM:
    """The packaged model, as the page has it."""
    return load(PACKAGED).as_half()


@pytest.fixture(scope="session")
def tiny() -> CharLM:
    return tiny_model()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, tiny: CharLM) -> dict[str, Path]:
    """Pages by name: the packaged model, a tiny one, and a tiny gated one beside a tiny stacked one."""
    folder = tmp_path_factory.mktemp("pages")
    stacked = packed(tiny_model("stacked", seed=1), "stacked")
    contents = {
        "packaged": [packed(load(PACKAGED), PACKAGED)],
        "tiny": [packed(tiny, "tiny")],
        "two": [packed(tiny, "gated"), stacked],
    }
    for name, models in contents.items():
        (folder / f"{name}.html").write_text(page(models), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in contents}


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Opened]:
    """Open a page by name; afterwards it must have said and asked for nothing it should not."""
    kept = []

    def open_page(name: str = "tiny", hash: str = "", before: str = "", **options: object) -> Page:
        context = browser.page(**options)  # type: ignore[arg-type]
        tab = context.__enter__()
        kept.append((context, tab))
        if before:
            tab.before_scripts(before)
        tab.goto(pages[name].as_uri() + hash)
        tab.run("gfrnn.ready")
        return tab

    yield open_page
    for context, tab in kept:
        complaints, requests = tab.complaints, tab.requests
        context.__exit__(None, None, None)
        assert complaints == []
        assert [url for url in requests if not url.startswith(("file:", "blob:"))] == []
