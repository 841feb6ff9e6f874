"""Options that several commands share: a group is a dataclass, and a command that has a parameter of its
type has all its options.

Knows nothing of what the options mean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from typing import Any, get_type_hints


def with_groups(command: Callable[..., int]) -> Callable[..., int]:
    """The command as typer should see it: the options of its groups in their places, by their own names.

    Called with single options, it puts the groups together again. The fields of a group carry what a
    parameter would (`Annotated[int, typer.Option(…)] = 3`).

    Raises:
        TypeError: two options have one name.
    """
    hints = get_type_hints(command, include_extras=True)
    shown: dict[str, inspect.Parameter] = {}
    groups: dict[str, type] = {}

    def show(parameter: inspect.Parameter) -> None:
        if parameter.name in shown:
            raise TypeError(f"{command.__name__} has two options named {parameter.name}")
        shown[parameter.name] = parameter

    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if isinstance(hint, type) and is_dataclass(hint):
            groups[parameter.name] = hint
            for option in _options(hint):
                show(option)
        else:
            show(parameter.replace(annotation=hint))

    def call(**values: Any) -> int:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in _fields(group)})
        return command(**values)

    call.__name__, call.__doc__, call.__module__ = command.__name__, command.__doc__, command.__module__
    call.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    call.__signature__ = inspect.Signature(list(shown.values()))  # type: ignore[attr-defined]
    return call


def _options(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in _fields(group)
    ]


def _fields(group: Any) -> tuple[Field[Any], ...]:
    return fields(group)
