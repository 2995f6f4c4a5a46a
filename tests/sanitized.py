# SPDX-License-Identifier: MIT
"""C tests and process tests under a sanitizer: `python -m tests.sanitized address|thread [PYTEST ARGUMENTS]`.

With arguments only pytest runs, with those. A copy of the sources gets instrumented extension modules, and pytest runs
there with the sanitizer's library preloaded; so neither the checkout nor an installed pccl is touched. Only our own
code is instrumented, and nothing in it is excused. A report of any process, also of one that was killed or that nobody
looked at, is a failure.

Leaks are looked for in the C tests only, since the interpreter never frees all it has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ["pccl", "tests", "stress", "examples", "docs"]

SANITIZERS = {"address": "address,undefined", "thread": "thread"}
# Where there is one thread, ThreadSanitizer has nothing to find; the simulations would take it half an hour.
C_TESTS: dict[str, list[str]] = {"address": [], "thread": ["--label-regex", "threads"]}
LIBRARIES = {
    # zmq is C++: the sanitizer looks for its exceptions when it starts.
    "address": ["libasan.so", "libstdc++.so"],
    "thread": ["libtsan.so"],
}

UNTESTED = [
    "test_bench.py",  # speeds
    "test_demo.py",  # needs scikit-learn, which is not ours
    "test_leaks.py",  # memory, which sanitizers hold back
    "test_sabotage.py",  # times; and what spoils its workers takes the place of SITE
    "test_stress.py",  # times
]
"""Process tests that measure what a sanitizer changes, or that would mostly run other people's code."""

NO_THREADS_AFTER_FORK = ["test_fork.py"]
"""A child inherits ThreadSanitizer's list of threads that it has not, and ends at the first one it starts."""

SITE = """
import sys

# An editable install of pccl must not come before this copy.
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirect" not in type(finder).__name__]
"""


def build(kind: str, folder: Path) -> list[Path]:
    """Compiles the instrumented extension modules and the C tests; the modules' paths."""
    options = [f"-DPCCL_SANITIZE={SANITIZERS[kind]}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DPCCL_TESTS=ON"]
    options.append(f"-DPython_EXECUTABLE={sys.executable}")
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder], check=True, stdout=subprocess.DEVNULL)
    modules = [*folder.glob("_cffi*.so"), *folder.glob("_quick*.so")]
    assert len(modules) == 2, "one of each"
    return modules


def copy_tree(target: Path, modules: list[Path]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in COPIED:
        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", target)
    for module in modules:
        shutil.copy(module, target / "pccl")
    (target / "sitecustomize.py").write_text(SITE)


def _library(name: str) -> str:
    found = subprocess.run(["cc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
    return found.strip()


def environment(reports: Path) -> dict[str, str]:
    """Of the C tests."""
    common = f"log_path={reports}/report:abort_on_error=1:halt_on_error=1"
    return {
        **os.environ,
        "ASAN_OPTIONS": f"{common}:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": f"{common}:print_stacktrace=1",
        "TSAN_OPTIONS": f"{common}:second_deadlock_stack=1",
    }


def python_environment(kind: str, tree: Path, reports: Path) -> dict[str, str]:
    """Of the process tests."""
    common = environment(reports)
    return {
        **common,
        "PYTHONPATH": str(tree),
        "PCCL_TEST_PATIENCE": "10",
        "LD_PRELOAD": " ".join(_library(name) for name in LIBRARIES[kind]),
        "ASAN_OPTIONS": f"{common['ASAN_OPTIONS']}:detect_leaks=0",
        # What only other people's uninstrumented code did to its memory is their business. We have no thread-local
        # memory, and of that of others it takes what lies before a page's first bytes for a length: it ends at times.
        "TSAN_OPTIONS": f"{common['TSAN_OPTIONS']}:ignore_noninstrumented_modules=1:die_after_fork=0"
        ":intercept_tls_get_addr=0",
    }


def main() -> int:
    kind, *arguments = sys.argv[1:]
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # cmake, ninja, ctest
    folder = ROOT / "build" / f"sanitized-{kind}"
    tree, reports = folder / "tree", folder / "reports"
    copy_tree(tree, build(kind, folder / "cmake"))
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    failed = False
    if not arguments:
        command = ["ctest", "--test-dir", folder / "cmake/csrc", "--output-on-failure", *C_TESTS[kind]]
        failed = subprocess.run(command, env=environment(reports), check=False).returncode != 0
        untested = UNTESTED + (NO_THREADS_AFTER_FORK if kind == "thread" else [])
        arguments = ["tests/process", *(f"--ignore=tests/process/{name}" for name in untested)]
    command = [sys.executable, "-m", "pytest", "--timeout=600", "-p", "no:cacheprovider", *arguments]
    tested = subprocess.run(command, cwd=tree, env=python_environment(kind, tree, reports), check=False)
    found = sorted(reports.iterdir())
    for report in found:
        print(f"\n{report.name}:\n{report.read_text(errors='replace')}", file=sys.stderr)
    print(f"{kind} sanitizer: {len(found)} reports")
    return failed or tested.returncode != 0 or bool(found)


if __name__ == "__main__":
    sys.exit(main())
