"""JWKS document of a URL, fetched over verified TLS without redirects, bounded in size."""

import ssl
from pathlib import Path

import aiohttp

from webhook.errors import UserError
from webhook.ports import KEY_SET_BYTES_MAX, KeyDocument
from webhook.support.http_timeout import build_socket_timeouts
from webhook.support.redaction import mask, mask_credentials

_SUCCESS = 200
_CA_BYTES_MAX = 1024 * 1024
_REMEDY = "check the URL, and with --jwks-ca the CA of its server"


class JwksUrl:
    """A KeyPublisher.

    Each fetch opens a new connection, once a minute, because the address of the host name may change.
    The caller bounds its time.
    """

    def __init__(self, url: str, ca: Path | None) -> None:
        self._url = url
        self._name = mask(url)
        self._ca = ca
        self._context = _make_context(ca)

    async def fetch(self) -> KeyDocument:
        if self._ca is not None:
            self._context = _make_context(self._ca)  # it may have been renewed
        return KeyDocument(self._name, await self._request())

    async def _request(self) -> bytes:
        connector = aiohttp.TCPConnector(ssl=self._context, force_close=True)
        # No proxy or credentials from the environment; no compressed response.
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=build_socket_timeouts(),
            trust_env=False,
            auto_decompress=False,
            headers={"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"},
        )
        try:
            async with session, session.get(self._url, allow_redirects=False) as response:
                if response.status != _SUCCESS:
                    raise UserError(f"{self._name}: HTTP {response.status}, and redirects are not followed", _REMEDY)
                return await self._read_bounded(response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = mask_credentials(str(error)) or type(error).__name__
            raise UserError(f"{self._name}: {said}", _REMEDY) from None

    async def _read_bounded(self, response: aiohttp.ClientResponse) -> bytes:
        body = b""
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > KEY_SET_BYTES_MAX:
                raise UserError(f"{self._name}: more than {KEY_SET_BYTES_MAX} bytes", _REMEDY)
        return body


def _make_context(ca: Path | None) -> ssl.SSLContext:
    """Return a TLS context that trusts only this CA, or the system's CAs if None."""
    if ca is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        with ca.open("rb") as file:
            context.load_verify_locations(cadata=file.read(_CA_BYTES_MAX).decode("ascii", "ignore"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UserError(f"{ca}: no CA in it can be used: {error}", "give the CA of the URL's server, PEM") from None
    return context
