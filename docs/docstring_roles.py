"""Docstrings as Markdown: ``:class:`Name``` is shown as code."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?([^`]*)`")


class PlainRoles(griffe.Extension):
    """Shows what a role refers to by its name."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that is shown."""
        if obj.docstring:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
