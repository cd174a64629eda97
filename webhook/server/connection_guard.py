"""Guard of the connections that calls use: client certificates, connection age, trust, and draining."""

import asyncio

from webhook.authentication.certificates.peer_recheck import Peer, PeerRecheck
from webhook.server.connection_table import ConnectionTable


class ConnectionGuard:
    """Checks and records the connection of each call. While `draining`, every response closes its connection."""

    def __init__(self, connections: ConnectionTable, peers: PeerRecheck) -> None:
        self.connections = connections
        self.draining = False
        self._peers = peers

    def record_request(self, transport: asyncio.BaseTransport | None) -> bool:
        """Record that a request header is complete; return True if its response should close the connection."""
        return not self.connections.record_request(transport) or self.draining

    def check_peer(self, peer: Peer) -> None:
        """Check the client certificate against the current CAs; AuthenticationError if it is no longer trusted."""
        self._peers.check(peer)

    def mark_trusted(self, transport: asyncio.BaseTransport | None) -> None:
        """Mark a connection over which an authenticated caller has sent a whole request."""
        self.connections.mark_trusted(transport)
