"""What a type costs in quality: bfloat16 against float32 on prompts of many kinds, decoded greedily."""

from __future__ import annotations

import torch
from transformers import AutoTokenizer, PreTrainedModel

from tests.benchmarks.ours import run_jobs, started
from tests.benchmarks.report import Line, Report
from tests.benchmarks.workload import Job, model_folder, plain_model

NUM_TOKENS = 32
PROMPTS = (
    "The capital of France is",
    "Today's weather is so",
    "In machine learning, a transformer is",
    "Once upon a time in a land far away,",
    "Quantum computing differs from classical computing because",
    "The history of the Roman Empire began",
    "def fibonacci(n):",
    "The three primary colours are",
    "To make a good cup of tea, first",
    "Water boils at",
    "My favourite book is",
    "SELECT name FROM users WHERE",
    "The largest planet in the solar system",
    "In 1969, people",
    "A recipe for pancakes:",
    "Dear Sir or Madam,",
    "The stock market fell today after",
    "1, 1, 2, 3, 5, 8,",
    "The opposite of hot is",
    "If it rains tomorrow, we",
    "Photosynthesis is the process by which",
    "The mayor of the town said that",
    "import numpy as np\n",
    "She opened the door and saw",
    "The difference between a virus and a bacterium is",
    "Roses are red,",
    "The first rule of",
    "An apple a day",
    "Electric cars are",
    "In the beginning",
)


def quality(report: Report) -> None:
    """How many outputs differ, how often the likeliest token is the same, the largest logit difference."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    work = [Job(tokenizer(prompt).input_ids, NUM_TOKENS) for prompt in PROMPTS]
    outputs = {dtype: run_jobs(started(dtype), work, slots=8)[0] for dtype in ("float32", "bfloat16")}
    differ = sum(a != b for a, b in zip(outputs["float32"], outputs["bfloat16"], strict=True))
    report.add(Line(f"bfloat16: prompts × {NUM_TOKENS} tokens that differ", differ, f"of {len(work)}"))
    same, places, largest = _teacher_forced(work, outputs["float32"])
    report.add(Line("bfloat16: the same likeliest token, on float32's text", 100 * same / places, "%"))
    report.add(Line("bfloat16: largest logit difference", largest, ""))


def _teacher_forced(work: list[Job], outputs: list[list[int]]) -> tuple[int, int, float]:
    """Places with the same likeliest token, all places, largest difference: both models on one text."""
    models: dict[torch.dtype, PreTrainedModel] = {
        dtype: plain_model(dtype) for dtype in (torch.float32, torch.bfloat16)
    }
    same = places = 0
    largest = 0.0
    with torch.inference_mode():
        for job, output in zip(work, outputs, strict=True):
            ids = torch.tensor([job.prompt + output])
            kept = slice(len(job.prompt) - 1, -1)
            exact, rough = (model(ids).logits[0, kept].float() for model in models.values())
            same += int((exact.argmax(-1) == rough.argmax(-1)).sum())
            places += len(output)
            largest = max(largest, float((exact - rough).abs().max()))
    return same, places, largest
