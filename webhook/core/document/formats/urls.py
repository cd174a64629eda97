"""Format of URLs of HTTP servers."""

import re

from webhook.core.document.formats.errors import must

_URL = re.compile(
    r"https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[!-~]*)?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?(/[!-~]*)?"
)


def http_url(text: str) -> None:
    remedy = "write one such as https://prometheus.monitoring.svc:9090, without user and password"
    must(_URL.fullmatch(text), "not the URL of an HTTP server", remedy)
