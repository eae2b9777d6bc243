"""What leaves the page and what comes back: exports, addresses; and how it looks in every size and colour."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import Page
from using import put, settled

TEXT = "<page>\n  <title>Isotropy</title>\n"


def numbers(tab: Page) -> Any:
    return tab.run("gfrnn.numbers().models[0]")


def test_pictures_and_numbers_are_exported(opened: Any, tmp_path: Path) -> None:
    tab = opened()
    tab.downloads(tmp_path)
    put(tab, TEXT)
    tab.run("document.querySelectorAll('button.svg').forEach((button) => button.click())")
    tab.click("#save-text")
    tab.click("#save-json")
    names = {"network.svg", "gates.svg", "classes.svg", "hidden-unit.svg", "influence.svg", "text.svg", "gfrnn.json"}
    wait_for_files(tab, tmp_path, names)
    for path in tmp_path.glob("*.svg"):
        picture = ElementTree.parse(path).getroot()
        assert picture.tag == "{http://www.w3.org/2000/svg}svg" and len(list(picture.iter())) > 20, path.name
    content = json.loads((tmp_path / "gfrnn.json").read_text())
    assert content["text"] == TEXT and len(content["models"][0]["gates"]) == len(TEXT)


def wait_for_files(tab: Page, folder: Path, names: set[str]) -> None:
    for _ in range(3000):
        if {path.name for path in folder.iterdir()} >= names:
            return
        tab.run("new Promise((resolve) => setTimeout(resolve, 20))")
    raise AssertionError(f"only {sorted(path.name for path in folder.iterdir())} were saved")


def test_the_address_holds_the_view(opened: Any) -> None:
    tab = opened()
    put(tab, "ö & # % =\n", 4)
    tab.click(".all-one")
    tab.expect("location.hash.includes('g0=1,1,1') && location.hash.includes('c=5')")
    other = opened(hash=tab.run("location.hash"))
    settled(other, "ö & # % =\n")
    assert other.run("gfrnn.numbers().cursor") == 5
    assert numbers(other)["held"] == [1] * 9
    assert numbers(other)["bits"] == numbers(tab)["bits"]
    assert other.run("document.querySelector('.switches select').value") == "1"


def test_any_address_opens(opened: Any) -> None:
    tab = opened(hash="#nonsense")
    assert tab.text("#told") == "The address of the page could not be read: it holds no text."
    assert tab.run("gfrnn.numbers().text").startswith("  <page>")
    for hash, text, cursor in (
        ("#t=abc&c=-7&g0=9,9", "abc", 0),
        ("#t=%E0%A4%A&c=4", None, None),
        ("#t=abcd&c=1e99", "abcd", 4),
        ("#t=", "", 0),
        ("#t=%3Cb%3Ea&c=two", "<b>a", 0),
    ):
        tab.run(f"location.hash = {json.dumps(hash)}")
        if text is not None:
            settled(tab, text)
            assert tab.run("gfrnn.numbers().cursor") == cursor
        assert numbers(tab)["held"] == [None] * 9
        assert tab.run("document.querySelectorAll('b').length") == 0


def test_an_address_that_comes_while_the_last_view_is_written_is_not_lost(opened: Any) -> None:
    tab = opened(hash="#t=abc&c=1")
    settled(tab, "abc")
    tab.run("location.hash = '#t=abcd&c=2'")
    settled(tab, "abcd")
    tab.expect("location.hash === '#t=abcd&c=2'")
    written = "const written = location.hash; location.hash = '#t=later&c=3'; history.replaceState(null, '', written);"
    tab.run(f"(() => {{ {written} }})()")  # what the page does 300 ms after a change, before it hears of the new one
    settled(tab, "later")
    assert tab.run("gfrnn.numbers().cursor") == 3


def test_two_models_side_by_side(opened: Any) -> None:
    tab = opened("two", "#t=" + quote(TEXT) + "&c=12")
    assert [tab.run(f"document.querySelectorAll('.name')[{n}].textContent") for n in range(2)] == ["gated", "stacked"]
    edges = tab.run("[...document.querySelectorAll('.panel')].map((panel) => panel.getBoundingClientRect().x)")
    assert edges[0] < edges[1]
    tab.choose("#colouring", "difference")
    assert "gated is cheaper" in tab.text("#legend")
    tab.click("#writing .primary")
    tab.expect("document.querySelector('#writing .stop').disabled")
    texts = tab.run("[...document.querySelectorAll('#written pre')].map((pre) => pre.textContent)")
    assert len(texts) == 2 and texts[0] != texts[1]


def test_light_and_dark(opened: Any) -> None:
    for dark in (False, True):
        tab = opened(dark=dark)
        background = tab.run("getComputedStyle(document.body).backgroundColor")
        tab.click("#theme")
        assert tab.run("getComputedStyle(document.body).backgroundColor") != background


@pytest.mark.parametrize("name", ["tiny", "two"])
def test_nothing_runs_over_the_edge(name: str, opened: Any) -> None:
    tab = opened(name, width=360)
    for width in (360, 768, 1440, 2560):
        tab.resize(width, 900)
        tab.expect(
            f"innerWidth === {width} && document.querySelector('.strips svg').clientWidth > {min(width, 1680)} / 4"
        )
        assert tab.run("document.documentElement.scrollWidth") <= width
