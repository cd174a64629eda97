"""Pages: address, title and builder of what is shown; and what a builder is given."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from webhook.console.interface.document_reader import DocumentReader
from webhook.core.console_views.cell import View


class Viewer(Protocol):
    """Who looks at the console."""

    @property
    def name(self) -> str:
        """The user, for the head of each page; "" if this console has one user."""
        ...

    @property
    def form_token(self) -> str:
        """The token that each form of this viewer must send; "" if the viewer may change nothing."""
        ...

    @property
    def identity(self) -> str:
        """What viewers with the same rights have in common."""
        ...

    async def sees(self, namespace: str) -> bool:
        """Whether to show Pods and decisions of a namespace."""
        ...

    async def sees_services(self) -> bool:
        """Whether to show what is of no namespace: services, queues, nodes, the policy."""
        ...


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request: where documents are read, who asks, the parts of the path, and the parameters of the query."""

    reader: DocumentReader
    viewer: Viewer
    path: Mapping[str, str]
    query: Mapping[str, str]

    def parse_number(self, name: str, default: int = 1) -> int:
        """Return a parameter that is a number, `default` for any other text."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else default  # noqa: PLR2004  a bound


@dataclass(frozen=True, slots=True)
class Page:
    """One page. Its template is `NAME.html`; its JSON form is at `api_path`, with the same parameters."""

    name: str
    path: str
    """As aiohttp's router takes it, such as `/service/{name}`."""
    title: str
    """Of the window, with parts of the path in braces, such as `Service {name}`."""
    build: Callable[[PageRequest], Awaitable[View]]
    """UserError is shown with its remedy; NoSuchServiceError and NoSuchPageError answer 404."""
    menu_place: int | None = None
    """The place in the menu; None: not in it."""
    menu_text: str = ""
    is_of_namespace: bool = False
    """Whether it shows Pods of namespaces only, and asks `viewer.sees` itself; other pages need `sees_services`."""
    is_live: bool = True
    """Whether the page is updated while somebody looks at it."""

    @property
    def api_path(self) -> str:
        return "/api/v1/services" if self.path == "/" else f"/api/v1{self.path}"
