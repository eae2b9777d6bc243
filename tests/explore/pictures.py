"""The pictures of the explorer in docs: python tests/explore/pictures.py takes them anew."""

from __future__ import annotations

import json
import tempfile
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from browser import Browser, Page, executable
from PIL import Image

from gfrnn.explore.pack import load, packed
from gfrnn.explore.page import page

DOCS = Path(__file__).parents[2] / "docs"
MODELS = ("gf-lstm-enwik8", "stacked-lstm-enwik8")
TEXT = json.loads((resources.files("gfrnn.explore") / "examples.json").read_text(encoding="utf-8"))[0]["text"]
QUIET = "gfrnn.numbers().models.every((model) => model.current)"


def take(tab: Page, name: str, top: float, height: float) -> None:
    """A part of the page in few colours, which is a third of the bytes."""
    tab.expect(QUIET)
    path = DOCS / f"{name}.png"
    width = tab.run("document.documentElement.clientWidth")
    tab.picture(path, whole=False, clip={"x": 0, "y": top, "width": width, "height": height})
    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def address(path: Path, sought: str) -> str:
    """With the cursor on the first of what is sought."""
    return f"{path.as_uri()}#t={quote(TEXT)}&c={len(TEXT[: TEXT.index(sought)].encode()) + 1}"


def main() -> None:
    found = executable()
    if found is None:
        raise SystemExit("there is no Chromium to open the page in: `make browser` gets it")
    browser = Browser(found)
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder) / "one.html", Path(folder) / "two.html"
        one.write_text(page([packed(load(MODELS[0]), MODELS[0])]), encoding="utf-8")
        two.write_text(page([packed(load(name), name) for name in MODELS]), encoding="utf-8")
        with browser.page(width=1240, height=1680) as tab:
            tab.goto(address(one, "ropic]]"))
            tab.run("gfrnn.ready")
            tab.click(".try-each")
            tab.expect("document.querySelector('.tried').textContent.includes('most')")
            take(tab, "explorer", 0, 1680)
        with browser.page(width=360, height=800, dark=True) as tab:
            tab.goto(address(one, "Isotropic]]"))
            tab.run("gfrnn.ready")
            take(tab, "explorer-phone", 0, 2280)
        with browser.page(width=1400, height=1763) as tab:
            tab.goto(address(two, "Isotropic]]"))
            tab.run("gfrnn.ready")
            tab.choose("#colouring", "difference")
            take(tab, "explorer-two", 0, 1763)
            tab.choose("#writing [name=max_new]", "700")
            tab.click("#writing .primary")
            tab.expect("document.querySelector('#writing .stop').disabled")
            tab.expect("document.querySelectorAll('#written table').length > 1")
            card = "document.querySelector('#writing').closest('.card').getBoundingClientRect()"
            top, height = tab.run(f"(() => {{ const b = {card}; return [b.top + scrollY - 15, b.height + 30] }})()")
            take(tab, "explorer-writing", top, height)
    browser.close()


if __name__ == "__main__":
    main()
