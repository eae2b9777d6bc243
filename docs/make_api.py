"""Writes docs/api.md from the docstrings, as they stand in the sources: `make api`. Nothing is imported."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
HOUSE = DOCS.parent / "src" / "gfrnn"
EQUATIONS = ["global_reset_gates", "gated_sum", "step"]
# A chapter: what it is called, where its names are imported from, its file, and the names in it.
CHAPTERS = [
    ("The layers", "gfrnn", "layers.py", ["GFLSTM", "GFGRU", "GFRNN", "GFBoundedLSTM", "GatedFeedback"]),
    ("What a layer has of torch's", "gfrnn.torch_names", "torch_names.py", ["TorchNames"]),
    ("To and from torch.nn", "gfrnn.convert", "convert.py", ["from_torch", "to_torch"]),
    ("A model of text", "gfrnn.models", "models/char_lm.py", ["CharLM"]),
    ("A model that executes programs", "gfrnn.models", "models/seq2seq.py", ["Seq2Seq"]),
    ("What both can: model folders", "gfrnn.models.pretrained", "models/pretrained.py", ["Pretrained"]),
    ("Hugging Face", "gfrnn.hf", "hf.py", ["GFRNNConfig", "GFRNNForCausalLM", "GFRNNTokenizer"]),
    ("Training", "gfrnn.training.run", "training/run.py", ["train"]),
    ("Recipes", "gfrnn.recipes", "recipes/__init__.py", ["Recipe", "load", "find"]),
    ("The paper", "gfrnn.equations", "equations.py", ["Spec", "State", "Weights", *EQUATIONS]),
    ("All timesteps at once", "gfrnn.ops", "ops/__init__.py", ["scan", "choose"]),
    ("What can go wrong", "gfrnn.errors", "errors.py", ["GfrnnError", "UsageError", "DataError", "NonFinite"]),
]
HEAD = """# Names to import

Made from the docstrings by `make api`; `help(gfrnn.GFLSTM)` shows the same. [architecture.md](architecture.md) is the
plan of the house.
"""


def page() -> str:
    return "\n".join([HEAD, *(line for chapter in CHAPTERS for line in described(*chapter))])


def described(title: str, module: str, file: str, names: list[str]) -> Iterator[str]:
    """One chapter, in lines of Markdown."""
    tree = ast.parse((HOUSE / file).read_text(encoding="utf-8"))
    found = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }  # overloads: last
    yield from (f"## {title}", "", f"From `{module}`.", "")
    for name in names:
        node = found[name]
        if isinstance(node, ast.FunctionDef):
            yield from entry("###", node)
            continue
        start = next((part for part in functions(node) if part.name == "__init__"), None)
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield from (
            f"### {name}",
            "",
            *fenced([f"class {name}({bases})", *(signature(start, name) if start else fields(node))]),
        )
        yield from prose(ast.get_docstring(node) or "")
        for part in functions(node):
            if not part.name.startswith("_") and ast.get_docstring(part):
                yield from entry("####", part, f"{name}.")


def functions(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [part for part in node.body if isinstance(part, ast.FunctionDef)]


def fields(node: ast.ClassDef) -> list[str]:
    """Those of a record, without what a comment says of them."""
    return [f"    {ast.unparse(part)}" for part in node.body if isinstance(part, ast.AnnAssign)]


def entry(level: str, node: ast.FunctionDef, of: str = "") -> Iterator[str]:
    kinds = {ast.unparse(decorator) for decorator in node.decorator_list}
    read_only = bool(kinds & {"property", "abstractmethod"}) and len(node.args.args) == 1
    head = (
        [f"{node.name}: {ast.unparse(node.returns)}" if node.returns else node.name]
        if read_only
        else signature(node, node.name)
    )
    yield from (f"{level} {of}{node.name}", "", *fenced(head))
    yield from prose(ast.get_docstring(node) or "")


def signature(node: ast.FunctionDef, name: str) -> list[str]:
    """As it is written in the source, on one line if it is short, else with a line for each argument."""
    whole = ast.unparse(node.args)
    words = re.sub(r"^(self|cls)(: [^,]*)?(, )?", "", whole)
    gives = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    if len(f"{name}({words}){gives}") <= 100:
        return [f"{name}({words}){gives}"]
    each = re.split(r", (?=[*\w]+(?:[:=,]|$))", words)  # not inside brackets: there no name is followed by one of these
    return [f"{name}(", *(f"    {one}," for one in each), f"){gives}"]


def fenced(lines: list[str], kind: str = "text") -> list[str]:
    return [f"```{kind}", *lines, "```", ""]


def prose(text: str) -> Iterator[str]:
    """A docstring: examples and what is laid out (equations, tables) as it stands, the rest as text."""
    for paragraph in filter(None, re.split(r"\n\s*\n", text)):
        lines = paragraph.splitlines()
        if lines[0].startswith(">>>"):
            yield from fenced(lines, "pycon")
        elif re.search(r"\^|\S {2,}\S|^ ", paragraph, flags=re.MULTILINE):
            yield from fenced(lines)
        else:
            yield from (*(line.replace("*", r"\*").replace("<", "&lt;") for line in lines), "")


if __name__ == "__main__":
    (DOCS / "api.md").write_text(page(), encoding="utf-8")
