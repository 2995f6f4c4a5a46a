# SPDX-License-Identifier: MIT
"""What reviewers would have to repeat, as checks over the source tree: `python -m tests.tidy`; pytest runs it too.

Each check takes a `Tree` and yields one line per fault, "path:line: what". A new check is a function and a line in
`CHECKS`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

FOLDERS = ("csrc", "pccl", "bindings", "tests", "stress", "examples", "docs")
SUFFIXES = (".py", ".pyi", ".c", ".h", ".cpp", ".txt", ".cmake", ".toml", ".md")
FOREIGN = ("third_party", "__pycache__")

# fmt: off
FORBIDDEN_IN_PROTOCOL = frozenset([
    "asyncio", "datetime", "logging", "multiprocessing", "os", "random", "secrets", "select", "selectors", "signal",
    "socket", "subprocess", "threading", "time", "uuid", "uvloop", "zmq",
])
# fmt: on
MARKERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
SLEEPS = re.compile(r"\b(time\.|asyncio\.|u|nano)?sleep\s*\(")
UNBOUNDED = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|gets|alloca)\s*\(")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|farm|tmp|root|home)/\w")
FUNCTION_LINES = 70
FILE_LINES = 700
LINE_CHARACTERS = 120

# Files of the reader's, in documents.
INVENTED_FILES = ("mine.toml", "out.json", "out.png")

# Sources that a test of another name covers, by path or by the beginning of paths; more than one may fit.
COVERED_BY = {
    "csrc/base/status.c": "tests/unit/test_errors.py",
    "csrc/channel/outbox.c": "tests/c/inbox_test.c",
    "csrc/channel/sim_": "tests/c/sim_test.c",
    "csrc/channel/tcp_": "tests/c/tcp_test.c",
    "csrc/engine/": "tests/c/core_test.c",
    "csrc/engine/pccl.c": "tests/c/engine_test.c",
    "csrc/kernel/": "tests/c/kernel_test.c",
    "csrc/plan/": "tests/c/plan_test.c",
    "pccl/_codec.py": "tests/unit/test_quantization.py",
    "pccl/bench/": "tests/unit/test_bench_parts.py",
    "pccl/bench/mpiexec.py": "tests/unit/test_bench_settings.py",
    "pccl/bench/settings.py": "tests/unit/test_bench_settings.py",
    "pccl/bench/work.py": "tests/unit/test_bench_work.py",
    "pccl/bench/contenders/": "tests/process/test_bench.py",
    "pccl/cli/": "tests/process/test_master.py",
    "pccl/control.py": "tests/process/test_communicator.py",
    "pccl/moves.py": "tests/process/test_collectives.py",
    "pccl/recorded.py": "tests/process/test_diagnosis.py",
    "pccl/steps.py": "tests/process/test_communicator.py",
    "pccl/reductions.py": "tests/process/test_collectives.py",
    "pccl/demo/": "tests/process/test_demo.py",
    "pccl/descriptors.py": "tests/unit/test_request.py",
    "pccl/fields.py": "tests/unit/test_messages.py",
    "pccl/protocol/": "tests/unit/test_golden.py",
    "pccl/stress/": "tests/process/test_stress.py",
    "pccl/torch/": "tests/torch/test_process_group.py",
    "pccl/trace/record.py": "tests/unit/test_file.py",
    "pccl/stress/relay_flow.py": "tests/unit/test_relay.py",
}


class Tree:
    """The project's text files under `root`, generated and foreign ones left out."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def files(self) -> dict[str, list[str]]:
        """Lines by path relative to the root, sorted by path."""
        paths = [path for path in self.root.iterdir() if path.is_file()]
        for folder in FOLDERS:
            paths += (self.root / folder).rglob("*")
        return {
            path.relative_to(self.root).as_posix(): path.read_text().splitlines()
            for path in sorted(paths)
            if path.is_file() and (path.suffix in SUFFIXES or path.name == "Makefile") and self._is_ours(path)
        }

    def matching(self, *suffixes: str, under: str = "") -> Iterator[tuple[str, list[str]]]:
        """(path, lines) of files in a folder that end as given."""
        return (
            (path, lines) for path, lines in self.files.items() if path.endswith(suffixes) and path.startswith(under)
        )

    def _is_ours(self, path: Path) -> bool:
        return not set(path.relative_to(self.root).parts) & set(FOREIGN)


def protocol_is_pure(tree: Tree) -> Iterator[str]:
    """The protocol cores get time and identifiers as arguments and do no I/O."""
    for path, lines in tree.matching(".py", under="pccl/protocol/"):
        for node in ast.walk(ast.parse("\n".join(lines))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            for module in modules:
                if module.partition(".")[0] in FORBIDDEN_IN_PROTOCOL:
                    yield f"{path}:{node.lineno}: a protocol core must not import {module}"


def tests_do_not_sleep(tree: Tree) -> Iterator[str]:
    """Tests wait for conditions, never for a time."""
    for path, lines in tree.matching(".py", ".c", ".h", under="tests/"):
        yield from _found(path, lines, SLEEPS, "a test must not sleep")


def no_unbounded_copies(tree: Tree) -> Iterator[str]:
    """C functions that cannot know the size of their target."""
    for path, lines in tree.matching(".c", ".h", ".cpp"):
        yield from _found(path, lines, UNBOUNDED, "has no bound")


def no_markers(tree: Tree) -> Iterator[str]:
    """Work that is left goes into an issue, not into a comment."""
    for path, lines in tree.files.items():
        yield from _found(path, lines, MARKERS, "left-over marker")


def no_machine_paths(tree: Tree) -> Iterator[str]:
    """Nothing may depend on the machine that it was written on."""
    for path, lines in tree.files.items():
        yield from _found(path, lines, MACHINE_PATHS, "names a path of one machine")


def sources_have_licences(tree: Tree) -> Iterator[str]:
    """The first line names the licence; the second where a `#!` line must come first."""
    for path, lines in tree.files.items():
        if path.endswith((".md", ".txt")) and not path.endswith("CMakeLists.txt"):
            continue
        first = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
        if not first or "SPDX-License-Identifier: MIT" not in first[0]:
            yield f"{path}:1: lacks its SPDX line"


def files_are_short(tree: Tree) -> Iterator[str]:
    """A file that grows without end wants splitting by noun."""
    for path, lines in tree.matching(".py", ".c", ".h", ".cpp"):
        if len(lines) > FILE_LINES:
            yield f"{path}:1: {len(lines)} lines, more than {FILE_LINES}"
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_CHARACTERS:
                yield f"{path}:{number}: {len(line)} characters, more than {LINE_CHARACTERS}"


def functions_fit_a_screen(tree: Tree) -> Iterator[str]:
    """No function is longer than 70 lines."""
    for path, lines in tree.matching(".py", ".c", ".h", ".cpp"):
        for name, first, last in _functions(path, lines):
            if last - first + 1 > FUNCTION_LINES:
                yield f"{path}:{first}: {name} has {last - first + 1} lines, more than {FUNCTION_LINES}"


def sources_have_tests(tree: Tree) -> Iterator[str]:
    """csrc/X/foo.c has a foo_test.c, pccl/X/foo.py a test_foo.py, or else `COVERED_BY` names what covers it."""
    tests = {path.rpartition("/")[2] for path in tree.files if path.startswith("tests/")}
    for path, lines in (*tree.matching(".c", under="csrc/"), *tree.matching(".py", under="pccl/")):
        stem = path.rpartition("/")[2].partition(".")[0]
        expected = f"{stem}_test.c" if path.endswith(".c") else f"test_{stem.strip('_')}.py"
        if expected in tests or (path.endswith(".py") and not any(_functions(path, lines))):
            continue
        if not any(path.startswith(covered) for covered in COVERED_BY):
            yield f"{path}:1: no {expected}, and no covering test is listed in tests/tidy.py"
    for path, test in COVERED_BY.items():
        if not any(tree.matching("", under=path)):
            yield f"{path}:1: is listed in tests/tidy.py but does not exist"
        if test not in tree.files:
            yield f"{path}:1: its covering test {test} does not exist"


def documents_name_real_tests(tree: Tree) -> Iterator[str]:
    """`test_x.py` and `test_y` in a document of docs/ are a file and a function of the tests."""
    files = [(path.rpartition("/")[2], lines) for path, lines in tree.matching(".py", under="tests/")]
    known = {name for name, _ in files}
    known |= {name for name, lines in files if name.startswith("test_") for name, _, _ in _functions(name, lines)}
    for path, lines in tree.matching(".md", under="docs/"):
        for number, line in enumerate(lines, 1):
            for name in re.findall(r"`(?:tests/\w+/)?(test_\w+(?:\.py)?)`", line):
                if name not in known:
                    yield f"{path}:{number}: {name}: there is no such test"


def documents_name_real_files(tree: Tree) -> Iterator[str]:
    """`name.c` in a document, or a path with a folder, is a file of the project."""
    names = {path.rpartition("/")[2] for path in tree.files}
    for path, lines in tree.matching(".md"):
        for number, line in enumerate(lines, 1):
            for name in re.findall(r"`([\w./-]+\.(?:py|c|h|md|toml|txt))`", line):
                known = name in names if "/" not in name else any(known.endswith(name) for known in tree.files)
                if not known and name not in INVENTED_FILES:
                    yield f"{path}:{number}: {name}: there is no such file"


def versions_agree(tree: Tree) -> Iterator[str]:
    """pyproject.toml, the package and the C header tell one version."""
    declared = _value(tree, "pyproject.toml", r'version = "(.+)"')
    if _value(tree, "pccl/__init__.py", r'__version__ = "(.+)"') != declared:
        yield f"pccl/__init__.py:1: its version is not {declared}"
    for part, number in zip(("MAJOR", "MINOR"), declared.split("."), strict=False):
        if _value(tree, "csrc/pccl.h", rf"#define PCCL_VERSION_{part} (\d+)") != number:
            yield f"csrc/pccl.h:1: its version is not {declared}"


def source_archives_are_whole(tree: Tree) -> Iterator[str]:
    """What the source archive leaves out is named from the root: `build*` would also mean bindings/cffi/build.py."""
    for pattern in re.findall(r'"(.+?)"', _value(tree, "pyproject.toml", r"sdist\.exclude = \[(.+)\]")):
        if not pattern.startswith("/"):
            yield f"pyproject.toml:1: sdist.exclude: {pattern} fits at any depth"


CHECKS: tuple[Callable[[Tree], Iterator[str]], ...] = (
    protocol_is_pure,
    tests_do_not_sleep,
    no_unbounded_copies,
    no_markers,
    no_machine_paths,
    sources_have_licences,
    files_are_short,
    functions_fit_a_screen,
    sources_have_tests,
    documents_name_real_tests,
    documents_name_real_files,
    versions_agree,
    source_archives_are_whole,
)


def _value(tree: Tree, path: str, pattern: str) -> str:
    """What the pattern's group fits in the first line that it fits, else an empty text."""
    found = (re.match(pattern, line) for line in tree.files.get(path, ()))
    return next((match.group(1) for match in found if match), "")


def _found(path: str, lines: list[str], pattern: re.Pattern[str], what: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        match = pattern.search(line)
        if match:
            yield f"{path}:{number}: {match.group().strip()}: {what}"


def _functions(path: str, lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """(name, first line, last line) of each function."""
    if path.endswith(".py"):
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.lineno, node.end_lineno or node.lineno
        return
    # In this style a C function's head starts in the first column and its closing brace stands there alone.
    head = 0
    for number, line in enumerate(lines, 1):
        if re.match(r"[a-z_].*\(", line, re.IGNORECASE) and not line.rstrip().endswith(";"):
            head = number
        elif line == "}" and head:
            name = re.search(r"(\w+)\s*\(", lines[head - 1])
            yield name.group(1) if name else "?", head, number
            head = 0
        elif line[:1] == "}":
            head = 0


def main() -> int:
    """Prints every fault of the project; the exit status says whether there is any."""
    tree = Tree(Path(__file__).parents[1])
    faults = [fault for check in CHECKS for fault in check(tree)]
    for fault in faults:
        print(fault)
    print(f"{len(tree.files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
