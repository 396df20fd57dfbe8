"""Errors for names that `pytorchrl` does not have, with an answer for those of other libraries."""

import sys
from typing import NoReturn

from pytorchrl.agent.other_names.items import answers

_PACKAGE = "pytorchrl"


def refuse_name(name: str) -> NoReturn:
    """Raise the error for an attribute that the package does not have, called by its ``__getattr__``.

    Raises:
        AttributeError: in one line, with what to write instead of the name of another library.
        ImportError: the same, for ``from pytorchrl import name``, which would drop the text of an AttributeError.
    """
    message = f"module {_PACKAGE!r} has no attribute {name!r}"
    answer = None if name.startswith("_") else answers().get(name)
    if answer is None:
        # With the module, Python adds the nearest name.
        raise AttributeError(message, name=name, obj=sys.modules[_PACKAGE])
    # The frame above is that of __getattr__; above it is what asked.
    asked = sys._getframe(1).f_back
    if asked is not None and asked.f_code.co_name == "_handle_fromlist":
        raise ImportError(f"cannot import name {name!r} from {_PACKAGE!r}: {answer}", name=_PACKAGE)
    raise AttributeError(f"{message}: {answer}", name=name)
