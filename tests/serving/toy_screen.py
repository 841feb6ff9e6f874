"""The real screen on the fake model, as a program: what the tests of `serve` show in a page."""

from __future__ import annotations

import sys

from cbtui.app import CbtuiApp
from cbtui.following.driver import LoopDriver
from cbtui.following.link import Link
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions
from cbtui.serving.leash import end_with_server
from engine.fake import FakeRunner


def main() -> None:
    options, link = LaunchOptions(raw=True, speed=50.0), Link()
    driver = LoopDriver(options, link, lambda _: FakeRunner())
    app = CbtuiApp(link, options, driver=driver, pace=Pace(), handles_signals=True)
    end_with_server(driver.close)
    app.run()
    driver.close()
    sys.exit(app.return_code)


if __name__ == "__main__":
    main()
