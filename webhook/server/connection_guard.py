"""Guard of the connections that calls use: client certificates, connection age, trust, and draining."""

import asyncio

from webhook.authentication.certificates.peer_recheck import PeerRecheck
from webhook.server.connection_table import ConnectionTable


class ConnectionGuard:
    """Checks and records the connection of each call. While `draining`, every response closes its connection."""

    def __init__(self, connections: ConnectionTable, peers: PeerRecheck) -> None:
        self.connections = connections
        self.draining = False
        self.check_peer = peers.check
        """Check a Peer against the current CAs; AuthenticationError if it is no longer trusted."""
        self.mark_trusted = connections.mark_trusted
        """Mark a connection over which an authenticated caller has sent a whole request."""

    def record_request(self, transport: asyncio.BaseTransport | None) -> bool:
        """Record that a request header is complete; return True if its response should close the connection."""
        return not self.connections.record_request(transport) or self.draining
