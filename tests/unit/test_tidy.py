# SPDX-License-Identifier: MIT
"""The project passes its own tidy checks, and each check finds the fault that it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import tidy

LICENCE = "SPDX-License-Identifier: MIT"

FAULTS = {
    tidy.protocol_is_pure: ("pccl/protocol/x.py", "from time import monotonic"),
    tidy.tests_do_not_sleep: ("tests/unit/test_x.py", "    time.slee" + "p(1)"),
    tidy.no_unbounded_copies: ("csrc/base/x.c", "    strcp" + "y(target, source);"),
    tidy.no_markers: ("csrc/base/x.h", "/* TO" + "DO: later */"),
    tidy.no_machine_paths: ("stress/x.py", 'OUTPUT = "/tm' + 'p/x"'),
    tidy.sources_have_licences: ("pccl/x.py", '"""No licence."""'),
    tidy.files_are_short: ("pccl/x.py", "x = 1\n" * 701),
    tidy.functions_fit_a_screen: ("csrc/base/x.c", "int x(void)\n{\n" + "    x();\n" * 70 + "}"),
    tidy.sources_have_tests: ("csrc/base/x.c", "int x;"),
    tidy.documents_name_real_tests: ("docs/x.md", "| a fault | `test_of_nothing` |"),
    tidy.documents_name_real_files: ("docs/x.md", "as `csrc/base/nothing.c` says"),
    tidy.versions_agree: ("pccl/__init__.py", '__version__ = "0.2.0"'),
    tidy.source_archives_are_whole: ("pyproject.toml", 'sdist.exclude = ["/x", "build*"]'),
}


@pytest.mark.parametrize("check", tidy.CHECKS, ids=lambda check: check.__name__)
def test_the_project_is_tidy(check: Callable[[tidy.Tree], Iterator[str]]) -> None:
    tree = tidy.Tree(Path(tidy.__file__).parents[1])
    assert len(tree.files) > 50
    assert list(check(tree)) == []


@pytest.mark.parametrize("check", tidy.CHECKS, ids=lambda check: check.__name__)
def test_each_check_finds_its_fault(
    check: Callable[[tidy.Tree], Iterator[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "COVERED_BY", {})
    name, text = FAULTS[check]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in tidy.FOLDERS:
        (tmp_path / folder).mkdir(exist_ok=True)
    path.write_text(text)
    faults = list(check(tidy.Tree(tmp_path)))
    assert len(faults) == 1, faults
    assert faults[0].startswith(f"{name}:")


def test_a_python_function_may_have_seventy_lines(tmp_path: Path) -> None:
    (tmp_path / "pccl").mkdir()
    (tmp_path / "pccl/x.py").write_text(f"# {LICENCE}\ndef x():\n" + "    x()\n" * 69)
    assert list(tidy.functions_fit_a_screen(tidy.Tree(tmp_path))) == []
    (tmp_path / "pccl/x.py").write_text(f"# {LICENCE}\ndef x():\n" + "    x()\n" * 70)
    assert len(list(tidy.functions_fit_a_screen(tidy.Tree(tmp_path)))) == 1


def test_a_stale_entry_of_the_covered_list_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/x.c").write_text("")
    monkeypatch.setattr(tidy, "COVERED_BY", {"csrc/x.c": "tests/c/y_test.c", "csrc/gone.c": "tests/c/y_test.c"})
    faults = list(tidy.sources_have_tests(tidy.Tree(tmp_path)))
    assert len([fault for fault in faults if fault.startswith("csrc/gone.c") and "listed" in fault]) == 1
    assert len([fault for fault in faults if "covering test" in fault]) == 2
