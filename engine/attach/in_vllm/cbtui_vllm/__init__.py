"""Writes what vLLM's scheduler does, step by step, for `cbtui attach` to show.

Runs inside vLLM's engine process, from this folder's parent on PYTHONPATH, and imports nothing but the
standard library and vLLM itself:

    PYTHONPATH=… vllm serve MODEL --scheduler-cls cbtui_vllm.scheduler.RecordingScheduler

It decides nothing: every decision is vLLM's own scheduler's. `scheduler` hooks in, `recorder` notes,
`lines` says as what, `stream` carries the notes away in a thread of its own: `encoding` makes bytes of them,
`sinks` and `readers` take these, `places` says where.
"""
