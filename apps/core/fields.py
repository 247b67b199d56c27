"""The primary key of everything that has a public id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from apps.core.ids import ID_LENGTH, new_id

if TYPE_CHECKING:
    _TextField = models.CharField[str, str]
else:
    _TextField = models.CharField


class IdField(_TextField):
    """A prefixed, time-sorted id (`apps.core.ids`) as primary key; `prefix` names the kind."""

    def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
        self.prefix = prefix
        kwargs.update(max_length=ID_LENGTH, primary_key=True, editable=False, default=self._new)
        super().__init__(*args, **kwargs)

    def _new(self) -> str:
        return new_id(self.prefix)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        for key in ("max_length", "primary_key", "editable", "default"):
            kwargs.pop(key, None)
        return name, path, list(args), {**kwargs, "prefix": self.prefix}
