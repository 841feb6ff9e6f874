"""Opens the screen: on an engine, a recorded trace, a server or a lesson; comes back when it is closed.

Chooses who drives the engine's side, and sees that whoever it is has ended.
"""

from __future__ import annotations

from cbtui.app import CbtuiApp
from cbtui.following.link import EngineDriver
from cbtui.following.overheard import tape_fault
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions
from cbtui.serving.leash import end_with_server, is_served
from cbtui.settings import read_settings, settings_path


def run_lesson(number: int) -> int:
    """Open the screen on a lesson, without a model of its own, and return the exit status."""
    app = CbtuiApp(
        options=LaunchOptions(lesson=number),
        handles_signals=True,
        settings=read_settings(settings_path()),
    )
    app.run()
    return app.return_code or 0


def run_app(options: LaunchOptions) -> int:
    """Open the screen and return the exit status once it is closed: 1 where a recording stopped early.

    Raises:
        TraceError: the trace to record cannot be written.
        MetricsError: metrics cannot be served.
    """
    from cbtui.following.driver import AttachDriver, LoopDriver, ReplayDriver, attached_source, vllm_source
    from cbtui.following.overheard import overheard

    with overheard(options) as link:
        driver: EngineDriver
        if options.replay is not None:
            driver = ReplayDriver(options.replay, options, link)
        elif options.attach is not None:
            driver = AttachDriver(attached_source, options, link)
        elif options.vllm is not None:
            driver = AttachDriver(vllm_source, options, link)
        else:
            driver = LoopDriver(options, link)
        settings = read_settings(settings_path())
        app = CbtuiApp(link, options, driver=driver, pace=Pace(), handles_signals=True, settings=settings)
        if is_served():
            end_with_server(driver.close)
        try:
            app.run()
        finally:
            driver.close()
            if app.engine is not None:
                app.engine.end()
    return app.return_code or int(bool(tape_fault(link)))
