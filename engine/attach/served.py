"""What a server serves, by the OpenAI route for it: the model as prompts must name it."""

from __future__ import annotations

from engine.attach.http import Http
from engine.attach.plain import harmless

#: How long a sequence may be where the server does not say.
LENGTH = 2048


def served_model(http: Http) -> tuple[str, int]:
    """The first model's name, and its longest sequence; an empty name: it tells none.

    Raises:
        SourceLost: there is no answer.
    """
    found = http.json("/v1/models")
    models = found.get("data") if isinstance(found, dict) else None
    first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    name, length = first.get("id"), first.get("max_model_len")
    if not isinstance(length, int) or not 1 < length < 1 << 30:
        length = LENGTH
    return harmless(name) if isinstance(name, str) else "", length
