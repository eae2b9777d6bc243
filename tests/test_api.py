"""docs/api.md is what `make api` makes of the docstrings as they are, and has what the package exports."""

from __future__ import annotations

import importlib
import re
import runpy
from types import ModuleType

from documents import ROOT

import gfrnn
from gfrnn import models

MAKER = runpy.run_path(str(ROOT / "docs/make_api.py"))
PAGE = (ROOT / "docs/api.md").read_text(encoding="utf-8")


def test_it_is_current() -> None:
    assert MAKER["page"]() == PAGE, "a docstring or a signature changed since: make api"


def test_it_has_all_that_is_exported() -> None:
    headings = set(re.findall(r"^### (\w+)$", PAGE, flags=re.MULTILINE))
    assert {name for name in (*gfrnn.__all__, *models.__all__) if not name.startswith("__")} <= headings


def test_names_are_where_it_says() -> None:
    for _, module, _, names in MAKER["CHAPTERS"]:
        if module != "gfrnn.hf":  # takes seconds to import, and is tests/test_hf.py's
            check(importlib.import_module(module), module, names)


def check(found: ModuleType, module: str, names: list[str]) -> None:
    for name in names:
        if module != "gfrnn" or name in gfrnn.__all__:  # the base of the layers is shown beside them
            assert hasattr(found, name), name
        assert f"### {name}\n" in PAGE


def test_every_entry_says_something() -> None:
    for entry in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]:
        words = re.sub(r"```text.*?```", "", entry, flags=re.DOTALL).splitlines()[1:]
        assert any(line.strip() for line in words) or entry.count("```text") > 1, entry
