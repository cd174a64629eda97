"""Conversion of errors of the `certs` package to the command line's errors."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from certs import CertsError
from webhook.errors import UserError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def convert_certs_errors(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Raise a UserError for each CertsError of a command."""

    @wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return command(*args, **kwargs)
        except CertsError as error:
            raise UserError(str(error), error.remedy) from None

    return run
