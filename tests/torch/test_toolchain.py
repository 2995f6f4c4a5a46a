# SPDX-License-Identifier: MIT
"""How the C++ form is compiled: what goes into its digest, and what is said where it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pccl.torch.toolchain import CannotCompile, Sources, Torch, compile_object, compiler, installed_torch

HERE = Sources.beside(Path(__file__).parents[2] / "pccl")


def some_sources(folder: Path, body: str) -> Sources:
    folder.mkdir()
    (folder / "one.cpp").write_text(body)
    (folder / "one.h").write_text("")
    (folder / "pccl.h").write_text("")
    return Sources(folder, folder)


def test_the_digest_is_of_all_that_is_compiled(tmp_path: Path) -> None:
    first = some_sources(tmp_path / "a", "int one;")
    assert first.digest() == some_sources(tmp_path / "b", "int one;").digest()
    assert first.digest() != some_sources(tmp_path / "c", "int two;").digest()
    before = first.digest()
    (tmp_path / "a" / "pccl.h").write_text("struct other;")
    assert first.digest() != before
    assert len(HERE.units) > 3


def test_the_digest_is_the_same_where_the_header_lies_elsewhere(tmp_path: Path) -> None:
    together = some_sources(tmp_path / "a", "int one;")
    apart = some_sources(tmp_path / "b", "int one;")
    (tmp_path / "api").mkdir()
    (tmp_path / "b" / "pccl.h").rename(tmp_path / "api" / "pccl.h")
    assert Sources(apart.bindings, tmp_path / "api").digest() == together.digest()


def test_no_sources(tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match="not in"):
        Sources(tmp_path, tmp_path).digest()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(CannotCompile, match="no-such-compiler"):
        compiler()


def test_a_torch_without_headers(tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match="headers"):
        compile_object(Torch("2.13.0", tmp_path, True), HERE, tmp_path / "x.so", compiler())


def test_what_the_compiler_says(tmp_path: Path) -> None:
    broken = some_sources(tmp_path / "a", "int one = two;")
    with pytest.raises(CannotCompile, match="two"):
        compile_object(installed_torch(), broken, tmp_path / "x.so", compiler())


def test_names() -> None:
    assert Torch("2.13.0+cpu", Path(), True).name == "pccl_torch-2.13.so"
    assert Torch("2.8.1", Path(), False).name == "pccl_torch-2.8-oldabi.so"
