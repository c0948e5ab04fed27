"""`dataclass(frozen=True, slots=True)` whose methods are made with the first value, for modules with many classes.

`dataclasses` compiles six methods for each class, 0.8 ms: 40 ms of a start with the console, which makes few of these
values. Here a class takes a tenth of that. The first value has `dataclasses` make the methods.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    #: Made with the first value. `__init__` stands last: another thread may make a value meanwhile.
    _LATER = ("__repr__", "__eq__", "__hash__", "__init__")

    def dataclass(*, frozen: bool, slots: bool) -> Any:
        if not frozen or not slots:
            raise TypeError("use dataclasses.dataclass")
        return _made

    def _made(cls: type) -> type:
        if hasattr(cls, "__post_init__") or any(name in vars(cls) for name in _LATER):
            raise TypeError(f"{cls.__name__} has methods of its own: use dataclasses.dataclass")
        cls.__doc__ = cls.__doc__ or f"{cls.__name__}({', '.join(cls.__annotations__)})"
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)

        def __init__(self: Any, *args: Any, **values: Any) -> None:
            _complete(made)
            made.__init__(self, *args, **values)

        def __setstate__(self: Any, state: list[Any]) -> None:
            _complete(made)
            for one, value in zip(dataclasses.fields(made), state, strict=True):
                object.__setattr__(self, one.name, value)

        made.__init__, made.__setstate__, made.__getstate__ = __init__, __setstate__, _state
        made.__setattr__ = made.__delattr__ = _refuse
        return made

    def _complete(made: type) -> None:
        """Give the class the methods of a dataclass with the same fields."""
        kinds = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
        given = [
            (one.name, one.type, dataclasses.field(**{kind: getattr(one, kind) for kind in kinds}))
            for one in dataclasses.fields(made)
        ]
        twin = dataclasses.make_dataclass(made.__name__, given, frozen=True)
        for name in _LATER:
            setattr(made, name, vars(twin)[name])

    def _state(self: Any) -> list[Any]:
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def _refuse(self: Any, name: str, *value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
