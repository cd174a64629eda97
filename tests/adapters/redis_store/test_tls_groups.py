"""Sentinels and a Cluster behind TLS: every named server is reached by TLS and needs a certificate."""

import socket
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from certs.files import write_key_pair
from tests.adapters.redis_store.transport import KEY, open_link
from tests.harness.identity import Pki
from tests.redis_servers import SERVICE, RedisCluster, RedisServer, program
from tests.redis_servers.sentinel import SentinelServer
from tests.redis_servers.tls import tls_proxy
from webhook.ports.store_url import StoreFiles

PROGRAM = "redis-8.2"


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    """Return the server's context, which requires a client certificate."""
    pki = Pki.create(tmp_path)
    write_key_pair(pki.client("podgate"), tmp_path / "client.crt", tmp_path / "client.key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pki.paths.certificate, pki.paths.key)
    return context


@pytest.fixture
def client_files(tmp_path: Path) -> StoreFiles:
    return StoreFiles(ca=tmp_path / "ca.crt", cert=tmp_path / "client.crt", key=tmp_path / "client.key")


async def test_sentinels_and_their_primary_are_reached_by_tls(
    context: ssl.SSLContext, client_files: StoreFiles, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        primary = stack.enter_context(RedisServer(program(PROGRAM), tmp_path / "primary"))
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        primary_port, sentinel_port = (listener.getsockname()[1] for listener in sockets)
        sentinel = stack.enter_context(SentinelServer(program(PROGRAM), tmp_path / "sentinel", primary_port, 1))
        await stack.enter_async_context(tls_proxy(sockets[0], primary, context, plain=True))
        await stack.enter_async_context(tls_proxy(sockets[1], sentinel, context))
        url = f"rediss+sentinel://127.0.0.1:{sentinel_port}/{SERVICE}"
        async with open_link(url, client_files) as link:
            assert await link.run([KEY], b"a") == b"a"
            assert await link.ask_histories() == {"": primary.cli("INFO", "server")["run_id"]}
        async with open_link(url) as link:
            with pytest.raises(RedisError, match=r"(?i)no Sentinel names .* certificate.verify.failed"):
                await link.ping()


async def test_cluster_nodes_are_reached_by_tls(
    context: ssl.SSLContext, client_files: StoreFiles, tmp_path: Path
) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [listener.getsockname()[1] for listener in sockets]
    async with AsyncExitStack() as stack:
        options = [("--cluster-announce-port", str(port)) for port in ports]
        cluster = stack.enter_context(RedisCluster(program(PROGRAM), tmp_path / "cluster", node_options=options))
        for listener, node in zip(sockets, cluster.nodes, strict=True):
            await stack.enter_async_context(tls_proxy(listener, node, context))
        async with open_link(f"rediss+cluster://127.0.0.1:{ports[0]}", client_files) as link:
            for tag in "abcdef":
                assert await link.run([f"podgate:{{{tag}}}"], tag.encode()) == tag.encode()
            assert {link.lane(tag) for tag in "abcdef"} == {f"127.0.0.1:{port}" for port in ports}
        assert sum(node.cli("DBSIZE") for node in cluster.nodes) == 6
