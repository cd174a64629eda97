"""Users of kube-apiserver's kubeconfig: one for each host and port that a webhook may name."""

import re
from collections.abc import Mapping, Sequence

from webhook.errors import UserError
from webhook.node_agent.credential_folder import IDENTITY, SECOND
from webhook.support.redaction import masked

_LABEL = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
# An IPv6 address needs its port: kube-apiserver never looks up one without.
_HOST = re.compile(rf"(?P<name>{_LABEL}(\.{_LABEL})*(?=:|$)|\[[0-9A-Fa-f:.]+\](?=:))(:(?P<port>[1-9][0-9]{{0,4}}))?")
_PORT_DEFAULT, _PORT_MAX = 443, 65535


def users_of(hosts: Sequence[str], second_port: int | None) -> Mapping[str, str]:
    """Return the certificate file of each user, by user name; UserError names an invalid --webhook.

    `hosts` are HOST or HOST:PORT, as a webhook's Service or URL has them; None: that Service has one port.
    """
    targets = [_target(host) for host in hosts]
    users = [(host, target, IDENTITY) for host, target in zip(hosts, targets, strict=True)]
    if second_port is not None:
        users += [(f"{name}:{second_port}", (name, second_port), SECOND) for name, _ in targets]
    called = [target for _, target, _ in users]
    if again := [f"{name}:{port}" for name, port in called if called.count((name, port)) > 1]:
        raise UserError(
            f"--webhook, --second-port {second_port or 0}: two users for {again[0]}: kube-apiserver takes one",
            "name each host once; where webhooks call a URL, write HOST:PORT and --second-port 0",
        )
    return {user: identity for user, _, identity in users}


def _target(host: str) -> tuple[str, int]:
    found = _HOST.fullmatch(host)
    port = int(found["port"] or _PORT_DEFAULT) if found else 0
    if found is None or port > _PORT_MAX:
        raise UserError(
            f"--webhook {masked(host)!r}: not a host and port of a webhook",
            "write HOST or HOST:PORT, such as podgate.podgate-system.svc, without https:// and path",
        )
    return found["name"], port
