"""The engine as a library: what the README shows runs as it stands there, and what is exported is light."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from reading import ROOT, code

import engine

SURFACE = {name: getattr(engine, name) for name in engine.__all__}


@pytest.mark.model
def test_the_readmes_code_runs_as_it_stands_and_prints_a_record_a_step(tmp_path: Path) -> None:
    (program,) = code("As a library")
    assert len(program.splitlines()) <= 10
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(line.startswith("StepRecord(step=") for line in lines)
    # Three requests of 8 tokens in two slots: the third enters once two have ended.
    assert len(lines) == 16


def test_importing_it_imports_no_more() -> None:
    code = (
        "import sys, engine\n"
        "assert [name for name in sys.modules if name.startswith('engine.')] == []\n"
        "engine.Engine, engine.load_model, engine.read_trace\n"
        "print({'torch', 'transformers', 'numpy', 'textual', 'rich', 'typer'} & set(sys.modules) or '')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_type_checkers_and_the_interpreter_are_told_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(engine))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == engine._HOMES
    assert sorted(imported) == sorted(engine.__all__)
    assert set(engine.__all__) <= set(dir(engine))


def test_a_name_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        engine.Motor  # noqa: B018


def members() -> list[tuple[str, object]]:
    """Every class and function of the surface, and every public method and property of its classes."""
    found: list[tuple[str, object]] = []
    for name, thing in SURFACE.items():
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        found.append((name, thing))
        for inner, member in vars(thing).items() if inspect.isclass(thing) else ():
            if not inner.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                found.append((f"{name}.{inner}", member))
    return found


@pytest.mark.parametrize(("name", "thing"), members(), ids=[name for name, _ in members()])
def test_everything_exported_says_what_it_is(name: str, thing: object) -> None:
    assert (inspect.getdoc(thing) or "").strip().endswith((".", ")", "|", ":", "`"))


@pytest.mark.parametrize(("name", "thing"), members(), ids=[name for name, _ in members()])
def test_an_error_raised_on_purpose_is_in_the_docstring(name: str, thing: object) -> None:
    thing = thing.fget if isinstance(thing, property) else thing
    if not inspect.isfunction(thing):
        return
    source = inspect.cleandoc("\n" + inspect.getsource(inspect.unwrap(thing)))
    raised = {
        node.exc.func.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    } - {"RuntimeError"}  # a fault in the engine, never in what it was given
    assert {error for error in raised if error not in (inspect.getdoc(thing) or "")} == set()


def test_both_packages_are_typed() -> None:
    assert all((ROOT / package / "py.typed").is_file() for package in ("engine", "cbtui"))
