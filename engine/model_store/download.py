"""`python -m engine.model_store.download PROJECT FILE FOLDER`: a package index's file, without an installer.

For environments that have none (`uv`, `pipx`, `venv --without-pip`). Asks the index the installers' own
variables name, else PyPI, by its simple interface in JSON (PEP 691). What arrives is checked by the caller.
"""

from __future__ import annotations

import os
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

#: Environment variables that name an index, the first that is set.
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
PYPI = "https://pypi.org/simple"
_TIMEOUT_S = 30.0


class _File(msgspec.Struct):
    filename: str
    url: str


class _Project(msgspec.Struct):
    files: list[_File]


def index_url() -> str:
    """The index to ask, without a slash at the end."""
    named = (os.environ.get(name) for name in INDEX_VARIABLES)
    return (next(filter(None, named), None) or PYPI).rstrip("/")


def download(project: str, name: str, folder: Path) -> None:
    """Bring a file of a project into a folder.

    Raises:
        OSError: the index cannot be reached, or the file not be written.
        ValueError: the index does not have it, or answers something else.
    """
    page = f"{index_url()}/{project}/"
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with _opened(urllib.request.Request(page, headers=accept)) as answer:
        try:
            listed = msgspec.json.decode(answer.read(), type=_Project)
        except msgspec.DecodeError:
            raise ValueError(f"{page} answers in another form than PEP 691's") from None
    url = next((file.url for file in listed.files if file.filename == name), None)
    if url is None:
        raise ValueError(f"{page} does not have {name}")
    request = urllib.request.Request(urllib.parse.urljoin(page, url))
    with _opened(request) as answer, (folder / name).open("wb") as out:
        shutil.copyfileobj(answer, out)


def _opened(request: urllib.request.Request) -> Any:
    """Ask over HTTP, with the system's proxies; nothing else is spoken."""
    if not request.full_url.startswith(("https://", "http://")):
        raise ValueError(f"{request.full_url} is no http address")
    return urllib.request.urlopen(request, timeout=_TIMEOUT_S)


def main() -> int:
    """Exit code 0 if the file is there, 1 with a sentence on standard error if not."""
    project, name, folder = sys.argv[1:]
    try:
        download(project, name, Path(folder))
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
            print(f"error: {error.reason}", file=sys.stderr)
        else:
            print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
