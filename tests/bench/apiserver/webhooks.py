"""Ways of a Pod through the API server: no webhook, one of Go, or Podgate; a namespace and configurations for each."""

from dataclasses import dataclass
from typing import Any

from tests.bench.policies import POLICY
from tests.bench.servers import GO, OWN
from webhook.core.document import Purpose, load
from webhook.core.webhook_configurations import ClientConfig, render_configurations

_PREFIX = "payments-"
"""The Go webhook places the Pods of namespaces with this prefix."""
_KINDS = {"mutate": "Mutating", "validate": "Validating"}


@dataclass(frozen=True)
class Way:
    """The calls for each Pod of a namespace, and the server that answers them."""

    name: str
    server: str = ""
    calls: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        return _PREFIX + "".join(letter if letter.isalnum() else "-" for letter in self.name)

    @property
    def scheduler(self) -> str:
        """Return the scheduler of the created Pods."""
        return "podgate-scheduler" if self.calls else "default-scheduler"

    def configurations(self, address: str, ca_bundle: bytes) -> list[dict[str, Any]]:
        """Return the webhook configurations, with a name of this way."""
        client = ClientConfig(f"https://{address}", ca_bundle)
        rendered = (
            _configure_podgate(self.namespace, client) if self.server == OWN else _configure_go(self.namespace, client)
        )
        chosen = []
        for call in self.calls:
            found = rendered[call]
            metadata = {**found["metadata"], "name": self.namespace}
            names = [f"{self.namespace}.{webhook['name']}" for webhook in found["webhooks"]]
            # So that a slow machine fails no call.
            webhooks = [
                {**webhook, "name": name, "timeoutSeconds": 30}
                for webhook, name in zip(found["webhooks"], names, strict=True)
            ]
            chosen.append({**found, "metadata": metadata, "webhooks": webhooks})
        return chosen


NONE = Way("none")
GO_MUTATE, GO_BOTH = Way("go mutate", GO, ("mutate",)), Way("go both", GO, ("mutate", "validate"))
OWN_MUTATE, OWN_BOTH = Way("podgate mutate", OWN, ("mutate",)), Way("podgate both", OWN, ("mutate", "validate"))
WAYS = (NONE, GO_MUTATE, GO_BOTH, OWN_MUTATE, OWN_BOTH)


def policy_of(*namespaces: str) -> str:
    """Return the policy with these namespaces in place of that of the Go webhook."""
    return POLICY.replace("namespaces: [payments]", f"namespaces: [{', '.join(namespaces)}]")


def _configure_podgate(namespace: str, client: ClientConfig) -> dict[str, dict[str, Any]]:
    """Return the configurations of Podgate for Pods of one namespace, as it renders them."""
    policy = load(policy_of(namespace).encode(), Purpose.SERVE).policy.policy
    mutating, validating, _ = render_configurations(policy, client)
    pods = [webhook for webhook in validating["webhooks"] if "workloads" not in webhook["name"]]
    return {"mutate": mutating, "validate": {**validating, "webhooks": pods}}


def _configure_go(namespace: str, client: ClientConfig) -> dict[str, dict[str, Any]]:
    here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    return {
        call: {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "go"},
            "webhooks": [
                {
                    "name": f"{call}.go.example",
                    "clientConfig": client.render(call),
                    "rules": [pods],
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "namespaceSelector": {"matchExpressions": [here]},
                }
            ],
        }
        for call, kind in _KINDS.items()
    }
