"""Live webhook configurations compared with the policy: what differs, and the webhooks to write in their place."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webhook.core.policy.model import LoadedPolicy
from webhook.core.webhook_configurations.client import ClientConfig, Json, ServiceReference
from webhook.core.webhook_configurations.rendering import ALL_CALLS, render_configurations

_CLIENT, _TIMEOUT = "clientConfig", "timeoutSeconds"


@dataclass(frozen=True, slots=True, order=True)
class ConfigurationName:
    """Kind and name of a webhook configuration."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


NAMES = (
    ConfigurationName("MutatingWebhookConfiguration", "podgate"),
    ConfigurationName("ValidatingWebhookConfiguration", "podgate"),
    ConfigurationName("ValidatingWebhookConfiguration", "podgate-policy"),
)


@dataclass(frozen=True, slots=True)
class OutdatedConfiguration:
    """A live configuration that differs from the policy's, or is absent."""

    name: ConfigurationName
    differences: tuple[str, ...]
    """Names of webhooks and fields, without values: the URL of a webhook may hold a secret path."""
    webhooks: Sequence[Json] = ()
    resource_version: str = ""
    """Version that `webhooks` may replace; "" for an absent configuration, which only an installation creates."""

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.differences)}"


def render_wanted_webhooks(policy: LoadedPolicy, *, all_calls: bool) -> Mapping[ConfigurationName, Sequence[Json]]:
    """Return the webhooks of each configuration for a policy. Only the path of their clientConfig is meaningful.

    TooManyEntriesError: the policy's namespaceSelectors would need too many webhooks.
    """
    found = render_configurations(
        policy.policy, ClientConfig(ServiceReference(), b""), policy.hash, all_calls=all_calls
    )
    return {
        ConfigurationName(configuration["kind"], configuration["metadata"]["name"]): configuration["webhooks"]
        for configuration in found
    }


def leaves_out_no_call(live: Mapping[ConfigurationName, Json]) -> bool:
    """Return whether the live configurations were rendered with `--all-calls`."""
    return any(ALL_CALLS in (configuration["metadata"].get("annotations") or {}) for configuration in live.values())


def find_outdated(
    wanted: Mapping[ConfigurationName, Sequence[Json]], live: Mapping[ConfigurationName, Json]
) -> tuple[OutdatedConfiguration, ...]:
    """Compare live configurations, as read from the API server, with wanted webhooks. `live` lacks absent ones.

    Service, URL, CA bundle and timeouts are the installation's, not the policy's: they are kept as they are.
    """
    return tuple(
        _describe_outdated(name, webhooks, live) for name, webhooks in wanted.items() if _differs(name, webhooks, live)
    )


def _differs(name: ConfigurationName, wanted: Sequence[Json], live: Mapping[ConfigurationName, Json]) -> bool:
    return name not in live or any(_list_differences(_read_webhooks(live[name]), wanted))


def _describe_outdated(
    name: ConfigurationName, wanted: Sequence[Json], live: Mapping[ConfigurationName, Json]
) -> OutdatedConfiguration:
    if name not in live:
        return OutdatedConfiguration(name, ("absent",))
    present = _read_webhooks(live[name])
    others = [webhook for configuration in live.values() for webhook in _read_webhooks(configuration)]
    default = next((webhook[_CLIENT] for webhook in (*present, *others)), None)
    differences = tuple(_list_differences(present, wanted))
    if default is None:
        return OutdatedConfiguration(name, (*differences, "no live webhook names the server"))
    by_name = {webhook["name"]: webhook for webhook in present}
    webhooks = [_complete(webhook, by_name.get(webhook["name"], {}), default) for webhook in wanted]
    return OutdatedConfiguration(name, differences, webhooks, live[name]["metadata"]["resourceVersion"])


def _complete(webhook: Json, present: Json, default: Json) -> Json:
    """Return a rendered webhook with the parts that are the installation's."""
    timeout = {_TIMEOUT: present[_TIMEOUT]} if _TIMEOUT in present else {}
    return {**webhook, **timeout, _CLIENT: _set_path(present.get(_CLIENT, default), _read_route(webhook))}


def _list_differences(present: Sequence[Json], wanted: Sequence[Json]) -> Iterator[str]:
    by_name = {webhook["name"]: webhook for webhook in present}
    for webhook in wanted:
        found = by_name.pop(webhook["name"], None)
        if found is None:
            yield f"{webhook['name']} is missing"
            continue
        fields = (webhook.keys() | found.keys()) - {_CLIENT, _TIMEOUT}
        changed = sorted(
            field for field in fields if _strip_empty(found.get(field)) != _strip_empty(webhook.get(field))
        )
        if _read_route(found) != _read_route(webhook):
            changed.append(f"path of {_CLIENT}")
        if changed:
            yield f"{webhook['name']} differs in {', '.join(changed)}"
    for name in by_name:
        yield f"{name} is not of this policy"


def _strip_empty(value: Any) -> Any:
    """Return a value without empty parts: the API server drops some of them, and adds others."""
    if isinstance(value, dict):
        parts = {key: _strip_empty(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, {}, [])} or None
    if isinstance(value, list):
        return [_strip_empty(part) for part in value] or None
    return value


def _read_webhooks(live: Json) -> Sequence[Json]:
    return live.get("webhooks") or ()


def _read_route(webhook: Json) -> str:
    """Return the last segment of the path: before it there may be a secret one."""
    client = webhook[_CLIENT]
    whole = client["service"].get("path") or "" if client.get("service") else client.get("url") or ""
    return str(whole).rpartition("/")[2]


def _set_path(client: Json, route: str) -> Json:
    if client.get("service"):
        before = str(client["service"].get("path") or "").rpartition("/")[0]
        return {**client, "service": {**client["service"], "path": f"{before}/{route}"}}
    return {**client, "url": f"{str(client.get('url')).rpartition('/')[0]}/{route}"}
