"""Client for the plain port of a server or a controller, and readers of its status document."""

import json
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import msgspec

from webhook.core.json_depth import UNREADABLE_JSON, bound_depth
from webhook.core.reporting.queue_document import QueueDocument
from webhook.core.reporting.status import CONTROLLER
from webhook.errors import NoSuchPageError, NoSuchServiceError, UserError
from webhook.support.input_files import read_bounded
from webhook.support.redaction import mask

DEFAULT_SERVER = "http://127.0.0.1:8081"
_TIMEOUT_SECONDS = 5
_PLAIN_PORT = "give --server the plain port (--plain-listen) of podgate serve"


def parse_status(body: bytes, server: str) -> dict[str, Any]:
    """Return the status document of a server or a controller; `server` names it in the UserError for anything else."""
    try:
        document = bound_depth(json.loads(body))
    except (ValueError, RecursionError):
        document = None
    is_podgate = isinstance(document, dict) and (
        document.get("role") == CONTROLLER or isinstance(document.get("services"), list)
    )
    if not is_podgate:
        raise UserError(f"{server}/status answers, but not as Podgate does", _PLAIN_PORT)
    return document  # type: ignore[no-any-return]  # checked above


def parse_queue(body: bytes, server: str) -> QueueDocument:
    """Return the queue document of a process; UserError for anything else."""
    try:
        return msgspec.json.decode(body, type=QueueDocument)
    except UNREADABLE_JSON:
        raise UserError(f"{server}/queue answers, but not as Podgate does", _PLAIN_PORT) from None


def build_no_services_error(server: str) -> UserError:
    """Return the error for a controller's URL given instead of a server's."""
    remedy = f"{_PLAIN_PORT}; podgate status --server {server} shows the controller itself"
    return UserError(f"{server} is a controller, which shows no services", remedy)


def mask_url(server: str) -> str:
    """Return a URL without its password, for messages."""
    return mask(server.rstrip("/"))


def get(server: str, path: str, remedy: str = _PLAIN_PORT, option: str = "--server") -> bytes:
    """Return the body at a path of a port at a URL.

    UserError: it cannot be read, with the `remedy` for its port; `option` is where the URL was given.
    """
    url = server.rstrip("/") + path
    name = mask(url)
    if not url.startswith(("http://", "https://")):
        raise UserError(f"{option}: {name!r} is no URL", f"write one such as {DEFAULT_SERVER}")
    opener = build_opener(ProxyHandler({}))  # a proxy would connect to its own loopback
    try:
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as answer:
            return read_bounded(answer, name)
    except HTTPError as error:
        with error:
            kind = NoSuchPageError if error.code == HTTPStatus.NOT_FOUND else UserError
            raise kind(f"{name}: HTTP {error.code}", remedy) from None
    except (OSError, HTTPException, ValueError) as error:
        unread = "its host and port cannot be read"  # the error's own text may quote a password
        cause = getattr(error, "reason", None) or error
        reason = (getattr(cause, "strerror", None) or cause) if isinstance(error, OSError) else unread
        raise UserError(
            f"no server answers at {name}: {reason}", f"start one with `podgate serve`, or {remedy}"
        ) from None


def find_service(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one service of a status document; NoSuchServiceError lists the known ones."""
    services: list[dict[str, Any]] = document["services"]
    found = next((service for service in services if service["name"] == name), None)
    if found is None:
        names = ", ".join(service["name"] for service in services) or "none"
        raise NoSuchServiceError(f"no service {name!r}: the policy in force has {names}")
    return found


def select_service(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a status document reduced to one service, its overrides and its pool."""
    overrides, queues = document["overrides"], document.get("queues")
    its = [queue for queue in queues["services"] if queue["service"] == name] if queues is not None else []
    return {
        **document,
        "queues": queues and {**queues, "services": its},
        "services": [find_service(document, name)],
        "overrides": {**overrides, "entries": [entry for entry in overrides["entries"] if entry["service"] == name]},
        "pools": [pool for pool in document["pools"] if name in pool["members"]],
    }
