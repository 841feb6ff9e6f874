"""Who stands and falls with the loaded model: the engine, arriving prompts, a guest, a load, the checks.

Takes the runner's news to them, and says to each what a load, a death, another model or a fault of the
engine means to it. When steps are done is not known here, and what is asked for by commands neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from engine.clock import EngineClock
from engine.engine import Engine
from engine.live.arrivals import Arrivals
from engine.live.guest import GUEST_TICKETS
from engine.live.host import Host
from engine.live.load import LOAD_TICKET
from engine.live.load_feed import LoadGenerator
from engine.live.model_life import ModelLife, other_model
from engine.live.settings import Settings
from engine.live.state import Failure
from engine.runner import (
    Died,
    Encoded,
    LoadFailed,
    Loading,
    ModelInfo,
    ModelRunner,
    Ready,
    RunnerDied,
    RunnerError,
    RunnerEvent,
)
from engine.stream.records import Record
from engine.verify.verifier import Verifier

TokenBytesFor = Callable[[ModelInfo], Callable[[int], bytes] | None]


class ModelUsers:
    """Keeps what uses a runner's model in step with whether it is there.

    Args:
        runner: whose news they are.
        clock: engine clock.
        settings: of the engine; a model's own length bounds them.
        token_bytes: makes the id → bytes function for a loaded model.
        n_top: likeliest tokens recorded beside each sampled one.
        new_seed: picks a seed for requests without one.
        verify: check finished greedy requests alone.
        append: takes a record.
        reject: takes a sentence for the user: something asked for will not be.

    Attributes:
        model: whether it is there, and why not.
        engine: None until the model was there once.
        arrivals: prompts without token ids.
        host: of a guest.
        load: generated requests.
        verifier: None: nobody checks.
    """

    def __init__(
        self,
        runner: ModelRunner,
        clock: EngineClock,
        settings: Settings,
        *,
        token_bytes: TokenBytesFor,
        n_top: int,
        new_seed: Callable[[], int],
        verify: bool,
        append: Callable[[Record], None],
        reject: Callable[[str], None],
    ) -> None:
        self.model = ModelLife(runner, clock.source)
        self.engine: Engine | None = None
        self.arrivals = Arrivals(runner, new_seed)
        self.host = Host()
        self.load = LoadGenerator(clock.source)
        self.verifier = Verifier(runner, clock.source) if verify else None
        self._runner = runner
        self._clock = clock
        self._settings = settings
        self._token_bytes = token_bytes
        self._n_top = n_top
        self._append = append
        self._reject = reject
        self._news: deque[RunnerEvent] = deque()

    @property
    def ready_engine(self) -> Engine | None:
        """The engine, while its model is there."""
        return self.engine if self.model.is_ready else None

    @property
    def has_work(self) -> bool:
        """Whether something runs, waits or arrives."""
        return bool(self.arrivals) or (self.engine is not None and self.engine.has_work)

    # -- what the runner says -----------------------------------------------------------------

    def take_news(self) -> bool:
        """Take in what the runner said since the last call; whether the model has come or gone.

        Raises:
            RunnerDied: it died over an answer; the news after that are kept for the next call.
        """
        has_turned = False
        self._news.extend(self._runner.poll())
        while self._news:
            match event := self._news.popleft():
                case Loading():
                    self.model.loading = event
                case Ready(info, epoch):
                    self._model_is_there(info, epoch)
                    has_turned = True
                case LoadFailed():
                    self.model.cannot_load(event)
                case Died(message):
                    self.died(message, None, start_again=True)
                    has_turned = True
                case Encoded():
                    self._take_ids(event)
        return has_turned

    def _take_ids(self, event: Encoded) -> None:
        if event.ticket >= GUEST_TICKETS:
            self.host.take(event)
        elif event.ticket == LOAD_TICKET:
            self.load.take(event, self.engine)
        else:
            assert self.engine is not None
            for error in self.arrivals.enter(self.engine, event):
                self._reject(error)

    def _model_is_there(self, info: ModelInfo, epoch: int) -> None:
        try:
            self.engine = self._engine_on(info, epoch)
        except RunnerDied:
            raise
        except RunnerError as exc:
            self.model.failure = Failure("KV cache", str(exc), "use fewer blocks: --num-blocks")
            return
        self.model.ready()
        if self.verifier is not None:
            self.verifier.begin(epoch, info.dtype)
        self.arrivals.ask_again(info)

    def _engine_on(self, info: ModelInfo, epoch: int) -> Engine:
        """The engine there is, gone on with; a new one where there is none, or the model is another one."""
        engine = self.engine
        if engine is not None and info.fingerprint == engine.info.fingerprint:
            engine.reset(epoch, self.model.death_reason)
            return engine
        self._settings.fit(info)
        if engine is not None:
            self._give_up(engine, other_model(self.model.death_reason))
            return engine.successor_on(info, self._token_bytes(info), epoch)
        return Engine(
            self._settings.config,
            self._runner,
            info,
            clock=self._clock,
            token_bytes=self._token_bytes(info),
            n_top=self._n_top,
            epoch=epoch,
            first_index=self.arrivals.num_taken,
        )

    def _give_up(self, engine: Engine, words: str) -> None:
        """What was begun on a model that is another one now ends, and is not gone on with."""
        self._append(engine.write_off(words))
        if self.verifier is not None:
            self.verifier.give_up(words)
        if self.load.stop():
            self._reject(f"the load has stopped: {words}")

    # -- what else befalls them ---------------------------------------------------------------

    def died(self, reason: str, step: int | None, *, start_again: bool) -> None:
        """The model process died.

        Args:
            step: in which; None: between two.
            start_again: False when the loop is ending anyway.
        """
        self.host.lost(reason)
        self.load.model_died()
        if self.engine is None:
            self._reject(reason)  # there is no record yet to say it in
        self.model.died(reason, step, start_again=start_again)

    def broke(self, engine: Engine, cause: str) -> None:
        """A fault of the engine itself: what it held cannot be trusted, and its requests end.

        A fresh one goes on; a second fault soon after is a failure that a restart may be asked for.
        """
        words = f"the engine broke: {cause}"
        self._append(engine.write_off(words))
        self.host.send_away(words)
        self.model.engine_broke(cause)
        self.engine = engine.successor()
        self.arrivals.ask_again(engine.info)
