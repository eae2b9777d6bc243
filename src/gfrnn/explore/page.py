"""One HTML file from the sources in this folder, the models and the examples."""

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

ENGINE = ("kernel", "network", "sampling", "reader", "worker")
VIEW = (
    "text",
    "models",
    "colours",
    "picture",
    "editor",
    "network",
    "gates",
    "strips",
    "classes",
    "units",
    "influence",
    "tags",
    "writing",
    "address",
    "export",
    "api",
    "panel",
    "main",
)


def source(path: str) -> str:
    return resources.files("gfrnn.explore").joinpath(path).read_text(encoding="utf-8")


def joined(folder: str, names: tuple[str, ...]) -> str:
    return '"use strict";\n' + "\n".join(source(f"{folder}/{name}.js") for name in names)


def page(models: list[dict[str, Any]]) -> str:
    """The page that shows one or two packed models.

    Its policy lets nothing in from outside: only the scripts and the style that stand in it, known by their hashes.
    """
    engine, style = joined("engine", ENGINE), source("style.css")
    view = f"(() => {{\n{joined('view', VIEW)}}})();\n"
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {hash_of(engine)} {hash_of(view)} 'wasm-unsafe-eval'",
            f"style-src {hash_of(style)}",
            "worker-src blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    parts = {
        "policy": policy,
        "title": html.escape(" and ".join(model["name"] for model in models)),
        "style": style,
        "engine": engine,
        "view": view,
        "models": as_data(models),
        "examples": as_data(json.loads(source("examples.json"))),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], source("page.html"))


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_data(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
