"""Forms that change nothing outside this console: what each answers to those whose form has their token."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.console.interface.page import PageRequest


@dataclass(frozen=True, slots=True)
class NextPage:
    """The page that follows, and what it says at its head."""

    address: str
    notice: str = ""
    part: str = ""
    """The id of the part of the page that is shown."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file to keep."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A document for programs."""

    document: Any


@dataclass(frozen=True, slots=True)
class ConsoleForm:
    """One form, and its answer. UserError is answered by an error page."""

    path: str
    answer: Callable[[PageRequest, Mapping[str, str]], Awaitable[NextPage | Attachment | JsonAnswer]]
