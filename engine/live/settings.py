"""Settings of an engine loop: those in force, and those asked for that act before the next step.

Owns the checks that a setting exists and when it may act. Knows nothing of threads or screens.
"""

from __future__ import annotations

import msgspec

from engine.config import EngineConfig
from engine.engine import Engine
from engine.live.commands import Configure
from engine.runner import ModelInfo
from engine.scheduling.modes import mode_named
from engine.scheduling.policies import policy_named


class Settings:
    """What an engine is, or will be, set to.

    Args:
        config: limits, policy and first mode.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pending_config: EngineConfig | None = None
        self.pending_mode: str | None = None
        self._preempts_surplus = False

    @property
    def mode(self) -> str:
        return self.config.mode

    def fit(self, info: ModelInfo) -> None:
        """A model's own `max_model_len` bounds the engine's."""
        longest = min(self.config.max_model_len, info.max_model_len)
        self.config = msgspec.structs.replace(self.config, max_model_len=longest)

    def ask_mode(self, name: str) -> None:
        """Ask for a mode; the one in force takes an earlier wish back.

        Raises:
            ValueError: there is no such mode.
        """
        mode_named(name)
        self.pending_mode = None if name == self.mode else name

    def ask(self, command: Configure) -> None:
        """Ask for other limits or another policy.

        Raises:
            ValueError: they cannot work (`ConfigError`), or there is no such policy.
        """
        if command.policy is not None:
            policy_named(command.policy)
        wanted = {name: value for name, value in msgspec.structs.asdict(command).items() if value is not None}
        preempts_surplus = wanted.pop("preempt_surplus")
        self.pending_config = msgspec.structs.replace(self.pending_config or self.config, **wanted)
        self._preempts_surplus |= preempts_surplus

    def apply(self, engine: Engine | None) -> None:
        """Let what was asked for act; between steps only."""
        if self.pending_mode is not None:
            self.config = msgspec.structs.replace(self.config, mode=self.pending_mode)
            if engine is not None:
                engine.set_mode(self.pending_mode)
            self.pending_mode = None
        pending = self.pending_config
        if pending is None:
            return
        if engine is not None:
            # A budget below the rows there are would leave some unfed: it waits until they have ended.
            if pending.max_num_batched_tokens < self._rows_left(engine, pending):
                return
            engine.configure(pending, preempt_surplus=self._preempts_surplus)
        self.config = msgspec.structs.replace(pending, mode=self.mode)
        if engine is not None:
            self.follow(engine)
        self.pending_config, self._preempts_surplus = None, False

    def follow(self, engine: Engine) -> None:
        """The engine has given a policy up: what is in force, and what is asked for beside it, say so."""
        given_up, policy = self.config.policy, engine.config.policy
        if policy == given_up:
            return
        self.config = msgspec.structs.replace(self.config, policy=policy)
        if self.pending_config is not None and self.pending_config.policy == given_up:
            self.pending_config = msgspec.structs.replace(self.pending_config, policy=policy)

    def _rows_left(self, engine: Engine, pending: EngineConfig) -> int:
        """Rows of the next step, once the surplus has been preempted where that was asked for."""
        scheduler = engine.scheduler
        if not self._preempts_surplus:
            return scheduler.num_rows
        return min(len(scheduler.running), pending.max_num_seqs) + len(scheduler.held)
