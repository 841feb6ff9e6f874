"""The built wheel: installed into an empty environment without pip, it runs from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRACE = ROOT / "tests" / "data" / "trace-static.jsonl"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: Not to be found in the environment: it must do without, as those of uv and pipx do.
INSTALLERS = ("pip", "uv", "cbtui", "__editable__")


def tracked() -> list[str]:
    """The files of the two packages that are part of the project."""
    words = ["git", "ls-files", "engine", "cbtui"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel made from it, by `python -m build`."""
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


@pytest.mark.long
def test_everything_of_the_packages_is_in_the_wheel_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == set(tracked())
    assert {
        "engine/py.typed",
        "cbtui/py.typed",
        "cbtui/cbtui.tcss",
        "engine/workload/tutorial.jsonl",
    } <= names


@pytest.mark.long
def test_the_sdist_has_what_the_wheel_is_made_from(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {*tracked(), "README.md", "LICENSE", "pyproject.toml"} <= names


@pytest.mark.long
def test_the_metadata_says_what_it_is(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        lines = wheel.read(name).decode().splitlines()
    assert {"Name: cbtui", "License-Expression: MIT", "Requires-Python: >=3.11"} <= set(lines)
    assert "Classifier: Typing :: Typed" in lines
    extras = {line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra: ")}
    assert extras == set(PROJECT["project"]["optional-dependencies"])


class Environment:
    """A fresh environment without pip: our wheel, and a path to packages that are here already."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.EnvBuilder(with_pip=False).create(folder)
        self.python = folder / "bin" / "python"
        site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        words = [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
        options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*words, *options, str(wheel)], check=True)
        # What it needs: links to installed packages, without this checkout and without any installer.
        shelf = folder / "packages"
        shelf.mkdir()
        for place in (distribution("textual").locate_file(""), sysconfig.get_path("purelib")):
            for entry in Path(str(place)).iterdir():
                if not entry.name.startswith(INSTALLERS) and not (shelf / entry.name).exists():
                    (shelf / entry.name).symlink_to(entry)
        (site / "packages.pth").write_text(f"{shelf}\n", encoding="utf-8")

    def run(self, *words: str, where: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CBTUI_TEST_RUNNER")}
        return subprocess.run(
            [str(self.python.with_name("cbtui")), *words],
            cwd=where,
            env=environment | variables,
            input="The capital of France is\n",
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment") / "v", built[1])


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--version"], f"cbtui {PROJECT['project']['version']}"),
        (["run", "--max-tokens", "2", "--threads", "1", "--raw"], " Paris"),
        (["compare", str(TRACE)], "One mode only"),
        (["lesson"], "1  "),
        (["settings"], "# slots = 3"),
        (["models", "list"], "SmolLM2-135M-Instruct"),
        (["export", str(TRACE), "--to", "html", "-o", "-"], "</html>"),
        (["doctor"], "ok    packages"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_the_installed_command_runs_from_any_folder(
    installed: Environment, tmp_path: Path, words: Sequence[str], said: str
) -> None:
    done = installed.run(*words, where=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


@pytest.mark.long
def test_it_is_the_installed_one_and_has_no_pip(installed: Environment, tmp_path: Path) -> None:
    code = "import cbtui, engine; print(cbtui.__file__, engine.__file__)"
    words = [str(installed.python), "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert str(ROOT) not in done.stdout and str(installed.python.parents[1]) in done.stdout


@pytest.mark.long
def test_the_default_model_is_asked_for_without_pip(installed: Environment, tmp_path: Path) -> None:
    """An index that cannot be reached shows which way it goes; the way itself is tested with an index."""
    variables = {
        "CBTUI_CACHE_DIR": str(tmp_path),
        "PIP_INDEX_URL": "http://127.0.0.1:9",
        "PATH": "/nowhere",
        "PIP_RETRIES": "0",
    }
    done = installed.run("models", "fetch", where=tmp_path, **variables)
    assert done.returncode == 2
    assert "could not be fetched: download: error: [Errno 111]" in done.stderr
