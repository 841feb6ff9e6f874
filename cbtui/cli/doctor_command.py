"""The command `cbtui doctor`; what it looks at is in `doctor.py`, imported once it is asked for."""

from __future__ import annotations

from cbtui.cli.model_options import Json


def doctor(*, as_json: Json = False) -> int:
    """What may be wrong on this machine, and how to mend it.

    Terminal, packages, torch, cores, memory, the default model and its cache, settings, extras. Loads no
    model and asks no server. Exit code 1 if something is wrong.
    """
    from cbtui.cli.doctor import examine, report

    return report(examine(), as_json=as_json)
