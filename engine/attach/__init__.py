"""Servers that others run, observed: each source yields the records an engine of ours would leave.

A source never changes the server it watches. What it cannot know is said in its `Provenance`.

`loop` follows a `source` for a screen; `opening` says which source an address wants:

- `stream`, a Unix socket: our own records, or what a recording vLLM writes. `vllm_stream` reads that by
  `vllm_lines`, `vllm_fold` makes records of it (with `vllm_alive`, `vllm_steps`, `vllm_waiting`), and
  `in_vllm/cbtui_vllm` is what writes it, inside the server.
- `server`, an URL: `llama` (`llama_slots`, `llama_steps`) or `vllm` by its metrics (`metrics_text`,
  `vllm_figures`, and `own_lanes` of what was `heard`); what both have is `asking`. What is `seen` becomes
  records in `seen_records`; `prompts` are sent by the `openai` route.
- `vllm_launch`: a vLLM of this program's own (`vllm_child`, `vllm_command`, `keeper`, `own_in_stream`).

`recordings` are the same streams as files.
"""
