"""Builds the optional C++ op (src/gfrnn/ops/cpu) when torch's headers and a compiler are there.

The same kernels are compiled once per instruction set and chosen at run time, so the binary runs on any CPU of its
architecture. Whatever goes wrong here costs speed, never the installation: the package then works without the op. Why
it was not built is kept in a note where the op would be, and `gfrnn doctor` shows it.

    GFRNN_BUILD=never     do not build        GFRNN_BUILD=require   fail when it cannot be built
    GFRNN_BUILD=objects   only compile, without torch what needs none: so that it is done while pip is busy
    GFRNN_SANITIZE=1      ASan + UBSan build (see `make sanitize`)
"""

import contextlib
import hashlib
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCE = pathlib.Path("src/gfrnn/ops/cpu")
NOTE = "_op_build.txt"  # beside the op: why it was not built
MODE = os.environ.get("GFRNN_BUILD", "auto")
SANITIZE = os.environ.get("GFRNN_SANITIZE") == "1"

# instruction set -> (compiler flags); "generic" always exists and is what every other CPU runs.
INSTRUCTION_SETS = {"generic": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    INSTRUCTION_SETS["avx2"] = ["-mavx2", "-mfma", "-mf16c"]
    INSTRUCTION_SETS["avx512"] = [
        *INSTRUCTION_SETS["avx2"],
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mprefer-vector-width=512",
    ]
    INSTRUCTION_SETS["avx512_bf16"] = [*INSTRUCTION_SETS["avx512"], "-mavx512bf16", "-DGFRNN_ROUNDED_ONLY"]
    INSTRUCTION_SETS["amx_bf16"] = [*INSTRUCTION_SETS["avx512_bf16"], "-mamx-tile", "-mamx-bf16"]


def torch_folder() -> pathlib.Path | None:
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.origin).parent if spec and spec.origin else None


def run_compiler(command: list[str], *_: object, **__: object) -> None:
    """As setuptools runs it, but an error says what the compiler said first."""
    name = command[0]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as error:
        raise RuntimeError(f"no C++ compiler: {name} cannot be run ({error.strerror})") from None
    sys.stderr.write(done.stderr)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "nothing")
        raise RuntimeError(f"the C++ compiler {name} failed with exit code {done.returncode} and said: {said}")


def knows(compiler: list[str], flags: list[str]) -> bool:
    """Whether it has these options: those for AMX came with GCC 11 and Clang 11."""
    with contextlib.suppress(OSError):
        return subprocess.run([*compiler, *flags, "-E", "-x", "c++", os.devnull], capture_output=True).returncode == 0
    return True  # no compiler: which is said when it is to compile


def digest(how: list[str], torch: pathlib.Path | None) -> str:
    """Of all that an object depends on: the compiler and its options, our sources, torch's version."""
    said = shutil.which(how[0]) and subprocess.run([how[0], "--version"], capture_output=True, text=True).stdout
    files = [*sorted(SOURCE.glob("*.h")), *sorted(SOURCE.glob("*.cpp")), *([torch / "version.py"] if torch else [])]
    contents = [file.read_bytes() for file in files]
    return hashlib.sha256(b"\0".join([*(word.encode() for word in (*how, said or "")), *contents])).hexdigest()


def kept(folder: pathlib.Path, wanted: str, make: Callable[[], str]) -> str:
    """The object that `make` makes, or made before of the same; who comes meanwhile waits for it."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "made-of.txt"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known, _, made = note.read_text(encoding="utf-8").partition("\n") if note.exists() else ("", "", "")
        if known != wanted or not pathlib.Path(made).is_file():
            note.unlink(missing_ok=True)
            made = make()
            note.write_text(f"{wanted}\n{made}", encoding="utf-8")
    return made


class BuildOp(build_ext):
    """One shared library from kernels.cpp (once per instruction set) and op.cpp (once)."""

    def build_extension(self, ext: Extension) -> None:
        op = pathlib.Path(self.get_ext_fullpath(ext.name))
        note = op.with_name(NOTE)
        for old in (op, note):
            old.unlink(missing_ok=True)
        try:
            self.build_op(ext)
        except Exception as error:
            if MODE == "require":
                raise
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(f"{error}\n", encoding="utf-8")
            print(
                f"gfrnn: the C++ op was not built ({error}); the package works without it, slower",
                file=sys.stderr,
            )

    def build_op(self, ext: Extension) -> None:
        torch = torch_folder()
        if torch is None and MODE != "objects":
            raise RuntimeError("no torch in the build environment (install with `pip install --no-build-isolation`)")
        flags = [
            "-std=c++20",
            "-O3",
            "-g0",  # Python's own options ask for what is stripped in the end
            "-fvisibility=hidden",
            "-fno-math-errno",
            "-ffp-contract=fast",
            "-Wall",
            "-Wextra",
            "-Wno-maybe-uninitialized",  # GCC 12 says it of its own AVX-512 header
        ]
        if SANITIZE:
            flags += [
                "-g",
                "-O1",
                "-fno-omit-frame-pointer",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=undefined",
            ]
        # Objects outlive the temporary folders that pip builds in.
        build = pathlib.Path(self.build_temp) if SANITIZE else pathlib.Path("build/op")
        self.compiler.call = self.compiler.spawn = run_compiler  # setuptools' name for it depends on its version

        def compile_one(name: str, isa: str, extra: list[str], needs: pathlib.Path | None = None) -> str:
            def make() -> str:
                return self.compiler.compile(
                    [str(SOURCE / name)],
                    output_dir=str(build / isa),
                    include_dirs=[str(SOURCE)],
                    extra_postargs=[*flags, *extra, *(["-isystem", str(needs / "include")] if needs else [])],
                )[0]

            # With whatever the environment adds (CXX, CXXFLAGS, CFLAGS).
            how = [*self.compiler.compiler_cxx, *self.compiler.compiler_so, *flags, *extra]
            return kept(build / isa, digest(how, needs), make)

        sets = {isa: more for isa, more in INSTRUCTION_SETS.items() if knows(self.compiler.compiler_cxx[:1], more)}
        known = [f"-DGFRNN_HAS_{isa.upper()}" for isa in sets]
        jobs = [(compile_one, "kernels.cpp", isa, [f"-DGFRNN_ISA={isa}", *more]) for isa, more in sets.items()]
        if torch is not None:  # first, as the kernels may be in the hands of somebody else
            jobs.insert(0, (compile_one, "op.cpp", "op", ["-DTORCH_TARGET_VERSION=0x020a000000000000", *known], torch))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [job.result() for job in [pool.submit(*job) for job in jobs]]
        if MODE == "objects":
            return
        self.compiler.link_shared_object(
            objects,
            self.get_ext_fullpath(ext.name),
            library_dirs=[str(torch / "lib")],
            libraries=["torch_cpu", "c10"],
            extra_postargs=["-fsanitize=address,undefined"]
            if SANITIZE
            else ["-Wl,-s"]
            if sys.platform == "linux"
            else [],
            target_lang="c++",
        )

    def get_ext_filename(self, fullname: str) -> str:
        # Not a Python module: the file is loaded by torch.ops.load_library, so it carries no interpreter tag.
        return os.path.join(*fullname.split(".")) + ".so"

    def copy_extensions_to_source(self) -> None:
        # Unlinked first: a process that has the old file mapped must not see it change.
        (SOURCE / "_op.so").unlink(missing_ok=True)
        (SOURCE / NOTE).unlink(missing_ok=True)
        super().copy_extensions_to_source()
        note = pathlib.Path(self.build_lib, *SOURCE.parts[1:], NOTE)
        if note.exists():
            shutil.copy(note, SOURCE)


class Wheel(bdist_wheel):
    """One for every Python 3: the op is no Python module, and it knows torch by its stable ABI (2.10 and newer)."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


sources = [str(SOURCE / "op.cpp"), str(SOURCE / "kernels.cpp")]
buildable = MODE != "never" and all(pathlib.Path(s).exists() for s in sources)
setup(
    ext_modules=[Extension("gfrnn.ops.cpu._op", sources, optional=MODE != "require")] if buildable else [],
    cmdclass={"build_ext": BuildOp, "bdist_wheel": Wheel},
)
