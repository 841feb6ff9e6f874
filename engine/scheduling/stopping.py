"""When a request has ended: end-of-sequence, stop ids, stop strings, then length (the order is vLLM's).

Knows nothing of slots, blocks or steps. Stop strings are looked for in the bytes of the output, since a
string, and a single character too, may begin in one token and end in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.request import Request, RequestStatus


class StopCheck:
    """Says whether a request's newest output token ends it.

    Args:
        eos_token_ids: tokens that end a request unless it ignores them.
        token_bytes: a token id's bytes; None: stop strings cannot be looked for.
    """

    def __init__(
        self, eos_token_ids: Iterable[int] = (), token_bytes: Callable[[int], bytes] | None = None
    ) -> None:
        self._eos_token_ids = frozenset(eos_token_ids)
        self._token_bytes = token_bytes

    def __call__(self, request: Request, longest: int) -> RequestStatus | None:
        """How it ended, or None: it goes on. Asked once for each new token.

        Args:
            longest: tokens, prompt and output, it may have.
        """
        params, token_id = request.params, request.output_token_ids[-1]
        if token_id in self._eos_token_ids and not params.ignore_eos:
            return RequestStatus.FINISHED_STOPPED
        if token_id in params.stop_token_ids:
            return RequestStatus.FINISHED_STOPPED
        if params.stop and self._has_stop_string(request, token_id):
            return RequestStatus.FINISHED_STOPPED
        if request.num_tokens >= longest:
            return RequestStatus.FINISHED_LENGTH_CAPPED
        return None

    def _has_stop_string(self, request: Request, token_id: int) -> bool:
        """Look at the bytes that end with the new token's, and note the string that begins first."""
        assert self._token_bytes is not None
        new = self._token_bytes(token_id)
        window = request.stop_window + new
        found = []
        longest = 0
        for string in request.params.stop:
            data = string.encode()
            longest = max(longest, len(data))
            at = window.find(data)
            if at >= 0:
                found.append((at, string))
        if found:
            at, request.stop_string = min(found)
            request.num_text_bytes = request.num_output_bytes - len(request.stop_window) + at
            return True
        request.num_output_bytes += len(new)
        # As much as a string still to be completed could have used.
        request.stop_window = window[-(longest - 1) :] if longest > 1 else b""
        return False
