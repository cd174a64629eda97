"""X-Forwarded-Client-Cert: what is accepted has one meaning, which a reader of its own finds, too."""

import re
import ssl
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import check_message
from webhook.authentication.xfcc import HEADER_BYTES_MAX, parse_forwarded_certificate
from webhook.errors import AuthenticationError

FORM = Form.BYTES
WORDS = (
    *("Cert=", "Hash=", "Subject=", "By=", "URI=", "DNS=", "Chain=", 'Subject="', "cert=", '";', ",", ";", '""'),
    *("%0A", "%2B", "%3D", "%25", "%22", "-----BEGIN%20CERTIFICATE-----", "-----END%20CERTIFICATE-----", "AAAA", "=="),
)
_BETWEEN = "\n"
"""Between several headers of one request; no header has a line break."""


def list_seeds() -> list[bytes]:
    der = bytes(range(48))
    pem = ssl.DER_cert_to_PEM_cert(der)
    cert, digest = f'Cert="{quote(pem, safe="")}"', f"Hash={sha256(der).hexdigest()}"
    headers = [
        cert,
        f"{digest};{cert}",
        f'By=spiffe://a/b;{digest};{cert};Subject="O=a,CN=b;c=d";URI=spiffe://a/b;DNS=one;DNS=two',
        f"Cert={quote(pem.rstrip(), safe='')}",
        f"{cert},{cert}",
        f"{cert};{cert}",
        f"{cert}{_BETWEEN}{cert}",
        f"Hash={'0' * 64};{cert}",
        f'Subject="Cert={quote(pem, safe="")}";{cert}',
        f"{cert};Chain={quote(pem, safe='')}",
        "",
    ]
    return [header.encode() for header in headers]


def check(data: bytes) -> None:
    headers = data.decode("latin-1").split(_BETWEEN)
    try:
        der = parse_forwarded_certificate(headers)
    except AuthenticationError as error:
        check_message(error.detail)
        assert error.status == 401
        return
    assert len(headers) == 1
    assert len(data) <= HEADER_BYTES_MAX
    pairs = _read_pairs(headers[0])
    [certificate] = [value for key, value in pairs if key == "cert"]
    assert ssl.PEM_cert_to_DER_cert(unquote_to_bytes(certificate).decode("ascii")) == der
    digests = [value for key, value in pairs if key == "hash"]
    assert digests in ([], [sha256(der).hexdigest()])


def _read_pairs(header: str) -> list[tuple[str, str]]:
    """Return keys and values of one element: split where no quotes are open."""
    parts = re.findall(r'(?:[^;,"]|"[^"]*")+|[;,]', header)
    assert "".join(parts) == header
    assert "," not in parts
    pairs = [part.partition("=") for part in parts if part != ";"]
    return [(key.lower(), value.strip('"')) for key, _, value in pairs]
