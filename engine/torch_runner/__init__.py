"""The model side in torch: the only package here that imports torch and transformers.

`runner` ties it together: `load` (with `sources`, `checks`, `probe`, `prepack`) makes a model ready,
`encoding` turns prompts into ids, `step` turns a plan into tensors, `forward` makes the one model call
over an `arena` with the `attention` of a route, `sampling` chooses tokens, `replay` runs a recorded call
again. `plain` is the model without any of it, to check against. `batching_hook` stands alone: it looks into
transformers' own continuous batching, for other programs to import.
"""

from engine.torch_runner.load import LoadOptions
from engine.torch_runner.runner import TorchRunner

__all__ = ["LoadOptions", "TorchRunner"]
