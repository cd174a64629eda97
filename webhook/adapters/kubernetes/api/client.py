"""API server connection, configured from the Pod's service account or from a kubeconfig.

kubernetes-asyncio loads the credentials of a kubeconfig and holds the connections. This module adds what it lacks.
Token files are reread (kubernetes-asyncio never rereads a kubeconfig's, and a newline in it would break the header). An
exec plugin runs again when its token has expired. ~/.netrc is ignored, and so are the environment's proxies inside a
cluster: they are those of external traffic.
"""

import asyncio
import binascii
import os
from collections.abc import Callable, Coroutine
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config_from_dict

from webhook.adapters.kubernetes.api.kubeconfig_document import find_named, load_kubeconfig, make_unusable_error
from webhook.adapters.kubernetes.api.proxy import check_proxy, find_proxy
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_USER_AGENT = f"podgate/{version('podgate')}"
_TOKEN_BYTES_MAX = 1 << 16


async def connect(kubeconfig: Kubeconfig | Path | None) -> ApiClient:
    """Return a client for the kubeconfig's cluster, or for this Pod's cluster if it is None. Sends no request."""
    if isinstance(kubeconfig, Path):
        kubeconfig = Kubeconfig((kubeconfig,))
    configuration = Configuration()
    if kubeconfig is None:
        _configure_by_service_account(configuration)
        place = str(_ACCOUNT)
    else:
        await _configure_by_kubeconfig(configuration, kubeconfig)
        place = str(kubeconfig)
    try:
        client = ApiClient(configuration)
    except OSError as error:  # includes ssl.SSLError
        remedy = "its certificate authority, client certificate and key must be PEM and belong together"
        raise UserError(f"{place}: unusable certificates: {error}", remedy) from None
    client.user_agent = _USER_AGENT
    _replace_session(client.rest_client)
    return client


def _configure_by_service_account(configuration: Any) -> None:
    token = _ACCOUNT / "token"
    try:
        load_incluster_config(  # type: ignore[no-untyped-call]  # its annotations have gaps
            configuration,
            try_refresh_token=False,
            token_filename=str(token),
            cert_filename=str(_ACCOUNT / "ca.crt"),
        )
    except (ConfigException, OSError, ValueError) as error:
        raise UserError(
            f"{_ACCOUNT}, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: {error}",
            "run in a Pod with a service account whose token is mounted, or name a kubeconfig",
        ) from None
    configuration.refresh_api_key_hook = _make_token_hook(token)


async def _configure_by_kubeconfig(configuration: Any, kubeconfig: Kubeconfig) -> None:
    document = load_kubeconfig(kubeconfig)
    context = kubeconfig.context or document["current-context"]
    try:
        loader = await load_kube_config_from_dict(document, context=context, client_configuration=configuration)
    except Exception as error:  # noqa: BLE001  an invalid kubeconfig raises exceptions of any type
        raise make_unusable_error(kubeconfig, _describe_error(error)) from None
    user = find_named(document["users"], find_named(document["contexts"], context, "context").get("user"), "user")
    if user.get("tokenFile"):
        token = Path(user["tokenFile"])
        if not _read_token(token):
            raise UserError(f"{kubeconfig}: tokenFile {token}: cannot be read, or is empty", "put a token there")
        configuration.api_key["BearerToken"] = ""
        configuration.refresh_api_key_hook = _make_token_hook(token)
    elif user.get("exec"):
        configuration.refresh_api_key_hook = _make_plugin_hook(loader)
    if configuration.proxy is None:
        configuration.proxy = find_proxy(configuration.host, os.environ)
    else:
        configuration.proxy = check_proxy(configuration.proxy, f"{kubeconfig}: proxy-url")


def _describe_error(error: Exception) -> str:
    match error:
        case FileNotFoundError(filename=None):
            return "the exec plugin's command is not there"
        case TypeError() | AttributeError():
            return "a part of it is of the wrong type, or the current context's user is not there"
        case binascii.Error():
            return "data in it that is not base64"
        case ConfigException() | OSError():
            return str(error) or repr(error)
    return type(error).__name__  # the message may quote the file


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_TOKEN_BYTES_MAX).decode().strip()
    except (OSError, ValueError):
        return ""


def _make_token_hook(path: Path) -> Callable[[Any], None]:
    """Return a hook that reads the token before each request: requests are few; the file is small and rotated."""

    def refresh(configuration: Any) -> None:
        if token := _read_token(path):  # else keep the last token: a file being replaced may be missing for a moment
            configuration.api_key["BearerToken"] = f"Bearer {token}"

    return refresh


def _make_plugin_hook(loader: Any) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Return a hook that runs the plugin again once its token has expired. Without an expiry it runs only once."""
    running: asyncio.Task[None] | None = None

    async def refresh(configuration: Any) -> None:
        nonlocal running
        if not hasattr(loader, "exec_plugin_expiry"):
            return
        if running is None or running.done():
            running = asyncio.create_task(loader.load_from_exec_plugin(), name="exec-plugin")
        await asyncio.wait([running])  # a request's timeout does not cancel it: its process would be left running
        try:
            running.result()
        except Exception as error:  # a plugin may fail in any way
            raise ConfigException(f"the exec plugin failed: {error!r}") from error
        configuration.api_key["BearerToken"] = loader.token

    return refresh


class _ApiConnection(ResponseHandler):
    """Connection that closes at once.

    aiohttp starts a TLS shutdown on a connection whose request timed out, and does not wait for the peer's reply. So
    the event loop of a command could end first, with the socket open.
    """

    def close(self) -> None:
        self.abort()


def _replace_session(rest: Any) -> None:
    """Replace the session by one whose connections close at once, and without the user's environment.

    Credentials of ~/.netrc break every request, and proxy variables are those of external traffic.
    """
    session: aiohttp.ClientSession = rest.pool_manager
    connector: Any = session.connector
    session.detach()
    connector._factory = partial(_ApiConnection, loop=asyncio.get_running_loop())  # noqa: SLF001  there is no option
    rest.pool_manager = aiohttp.ClientSession(connector=connector, trust_env=False)
