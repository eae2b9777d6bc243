"""Nothing we read can execute code: no unpickling, eval or unsafe YAML is in the package, and --verify is a cage."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import words

import gfrnn
from gfrnn.errors import DataError
from gfrnn.tasks.programs import verify
from gfrnn.tasks.programs.verify import PythonRunner
from gfrnn.this_python import running

PACKAGE = Path(gfrnn.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
MODULES = {  # that turn data into code, or start programs
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "copyreg", "jsonpickle"),
    *("code", "codeop", "runpy", "imp", "pty", "commands", "xmlrpc", "xml", "plistlib"),
}
NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
# Of those below they ask or write, and read nothing.
HARMLESS = {
    *(
        "torch.jit",
        "torch.jit.is_tracing",
        "torch.export",
        "torch.export.export",
        "torch.export.save",
        "torch.export.Dim",
    ),
    *("importlib.util", "importlib.util.find_spec"),
}
ATTRIBUTES = {
    *("torch.load", "torch.hub", "torch.package", "torch.jit", "torch.serialization", "torch.export", "torch._load"),
    *(
        "numpy.load",
        "np.load",
        "numpy.memmap.load",
        "np.fromregex",
        "np.lib",
        "numpy.lib",
        "safetensors.torch.load_model",
    ),
    *(
        "os.system",
        "os.popen",
        "os.startfile",
        "importlib.machinery",
        "importlib.util",
        "builtins.eval",
        "builtins.exec",
    ),
    *("pandas.read_pickle", "pandas.eval", "ctypes.PyDLL", "types.FunctionType", "types.CodeType"),
}
YAML_ALLOWED = {"yaml.safe_load", "yaml.safe_dump", "yaml.YAMLError"}
# Who may start a process or import by name, and why it cannot be led by what it reads.
REVIEWED = {
    ("subprocess", "training/runlog.py"): "git, asked for the commit of this source tree; all its words are ours",
    ("subprocess", "bench/memory.py"): "this Python again, to measure its memory; all its words are ours",
    ("subprocess", "bench/distributed.py"): "this Python again, in several processes; all its words are ours",
    ("subprocess", "campaign/run.py"): "this Python again, as `gfrnn train` and `eval`; all its words are ours",
    ("subprocess", "tasks/programs/verify.py"): "the cage of --verify: tested below",
    ("importlib.import_module", "cli/__init__.py"): "a module from the table VERBS",
    ("importlib.import_module", "cli/completion.py"): "a module from the table VERBS",
    ("importlib.import_module", "export/folder.py"): "a module from the table FORMATS",
    ("importlib.import_module", "training/trackers.py"): "a package from the table of trackers",
    ("importlib.import_module", "tasks/__init__.py"): "a module from the table TASKS",
}


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute or a name; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def suspicious(source: str, name: str) -> Iterator[str]:
    """Everything in a file that could execute what it reads and is not reviewed."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for imported in aliases.values():
        banned = any(imported == a or imported.startswith(f"{a}.") for a in ATTRIBUTES) and imported not in HARMLESS
        if imported.split(".")[0] in MODULES or banned:
            yield f"imports {imported}"
        if imported.split(".")[0] == "subprocess" and ("subprocess", name) not in REVIEWED:
            yield "imports subprocess"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in NAMES and isinstance(node.ctx, ast.Load):
            yield f"uses {node.id}"
        if isinstance(node, ast.Attribute) and (words := dotted(node)):
            first, _, rest = words.partition(".")
            full = f"{aliases.get(first, first)}.{rest}"
            if full not in HARMLESS and any(full == a or full.startswith(f"{a}.") for a in ATTRIBUTES):
                yield f"uses {full}"
            if re.match(r"os\.(exec|spawn|posix_spawn|fork)", full):
                yield f"uses {full}"
            if full.startswith("yaml.") and full not in YAML_ALLOWED:
                yield f"uses {full}"
            if full == "importlib.import_module" and (full, name) not in REVIEWED:
                yield f"uses {full}"
        if isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle", "weights_only", "trust_remote_code"):
            yield f"passes {node.arg}"
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if text == "-m" and name != "this_python.py":
            yield "starts a module without `running`"
        if re.search(r"\b(exec|eval|compile)\(", text) and name != "tasks/programs/verify.py":
            yield f"has code in a text: {text[:40]!r}"


def test_the_package_executes_nothing_it_reads() -> None:
    assert len(SOURCES) > 60
    found = {
        f"{path.relative_to(PACKAGE)}: {what}"
        for path in SOURCES
        for what in suspicious(path.read_text(), str(path.relative_to(PACKAGE)))
    }
    assert found == set()


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "import torch as t\nt.load('x')",
        "from torch import load",
        "from torch.jit import load",
        "import numpy as np\nnp.load('x')",
        "eval('1')",
        "f = exec",
        "import os\nos.system('x')",
        "from os import system",
        "import os\nos.execv('x', [])",
        "import yaml\nyaml.load('x', yaml.Loader)",
        "from yaml import unsafe_load\nimport yaml\nyaml.unsafe_load('x')",
        "import subprocess",
        "f(shell=True)",
        "import importlib\nimportlib.import_module(x)",
        "x = 'exec(y)'",
        "run([sys.executable, '-m', 'gfrnn'])",
    ],
)
def test_what_the_search_finds(line: str) -> None:
    assert list(suspicious(line, "models/some.py"))


def test_every_review_is_of_something_that_is_there() -> None:
    for what, name in REVIEWED:
        assert what.split(".")[-1] in (PACKAGE / name).read_text()


STRANGERS = ("yaml", "numpy", "torch", "json", "random", "safetensors", "rich", "gfrnn", "sitecustomize")


def test_launch_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """Neither torchrun nor the process it starts: modules of well-known names lie there."""
    strange = tmp_path / "here"
    strange.mkdir()
    for name in STRANGERS:
        (strange / f"{name}.py").write_text(f"open({str(tmp_path / 'fired')!r}, 'a').write({name!r})\n")
    lines = [*words(tmp_path, updates=2), "--out", str(tmp_path / "run")]
    command = [*running("gfrnn"), "launch", "-n", "1", "--max-restarts", "0", *lines]
    done = subprocess.run(command, cwd=strange, capture_output=True, text=True)
    assert not (tmp_path / "fired").exists()
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run/checkpoints/step-2").is_dir()


def test_verify_is_a_cage() -> None:
    """No environment, no place to stand, no files, no processes, little memory and time; isolated from our Python."""
    with PythonRunner(seconds=1.0) as run:
        assert run("print(1)") == "1"
        assert run._process is not None
        proc = Path(f"/proc/{run._process.pid}")
        if not proc.exists():
            pytest.skip("no /proc to look into")
        assert (proc / "environ").read_bytes() == b""
        assert (proc / "cwd").readlink() == Path("/")
        words = (proc / "cmdline").read_bytes().split(b"\0")
        assert words[:3] == [sys.executable.encode(), b"-I", b"-S"]
        limits = {line[:25].strip(): line[25:].split()[:2] for line in (proc / "limits").read_text().splitlines()}
        assert limits["Max address space"] == [str(verify.MEMORY_BYTES)] * 2
        assert limits["Max file size"] == limits["Max core file size"] == limits["Max processes"] == ["0", "0"]
        assert limits["Max open files"] == ["3", "3"]
        assert int(limits["Max cpu time"][0]) <= 5
        assert sorted(path.name for path in (proc / "fd").iterdir()) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("print(().__class__)", "is not one of the language's"),
        ("print(open('x'))", "is not one of the language's"),
        ("print(open(1))", "NameError"),
        ("print(exec(1))", "NameError"),
        ("a=[1]\nprint(a)", "is not one of the language's|does not run"),
        ("print((9**9**9))", "did not end|more memory|is not one of"),
        ("a=9\nfor x in range(9999999):a=(a*a)\nprint(a)", "did not end|more memory"),
        ("for x in range(99999):print(99999999999)", "prints more than 65,536 bytes"),
    ],
)
def test_nothing_gets_out_of_the_cage(source: str, sentence: str) -> None:
    with PythonRunner(seconds=1.0) as run:
        with pytest.raises(DataError, match=sentence):
            run(source)
        assert run("print((2+3))") == "5"
