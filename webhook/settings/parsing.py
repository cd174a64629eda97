"""Parser of flags and environment variables into typed settings; reports all mistakes at once, with their source."""

import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from webhook.errors import UserError
from webhook.ports.store_url import MEMORY
from webhook.settings import readers
from webhook.settings.declared import ProcessSettings, build_store_files
from webhook.settings.extender import ExtenderSettings
from webhook.settings.readers import Certificates, ClientIdentity
from webhook.settings.server import Settings
from webhook.support.redaction import mask, redact_path, redact_value

ENVIRONMENT_PREFIX = "PODGATE_"
# Twice RENEWAL_LIFETIME_SECONDS_MIN of certs.dual_port_rollover: to write one port, switch to it, and write the other.
_TURNING_LIFETIME_SECONDS_MIN = 900
# The next token is issued after a tenth of it. The leader polls every 10 s, the writer every 20 s, and kube-apiserver
# every 60 s.
_TOKEN_LIFETIME_SECONDS_MIN = 120
_SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_PATHS = frozenset({readers.file, readers.kubeconfig, readers.path})
CLIENT_VARIABLES = frozenset({"PODGATE_SERVER", "PODGATE_DECISIONS", "PODGATE_LEADER", "PODGATE_EXTENDER"})
"""Variables of client commands: the shell that starts a server may have them too."""
# Not settings: Kubernetes sets these in every container for each Service whose name starts with `podgate`.
_SERVICE_LINK = re.compile(r"PODGATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")

_Kind = TypeVar("_Kind", bound=ProcessSettings)


def name_flag(name: str) -> str:
    return f"--{name.replace('_seconds', '').replace('_', '-')}"


def name_variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.replace("_seconds", "").upper()


def is_in_cluster(environment: Mapping[str, str]) -> bool:
    """Return whether this process runs in a Pod with a service account's token."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and _SERVICE_ACCOUNT_TOKEN.is_file()


def parse(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Return the server's settings; UserError as in `parse_as`."""
    return parse_as(Settings, flags, environment)


def parse_as(kind: type[_Kind], flags: Mapping[str, str | None], environment: Mapping[str, str]) -> _Kind:
    """Return typed settings of a kind; UserError lists every mistake, each with its flag or variable."""
    values, mistakes = _read_values(kind, flags, environment)
    if "store" in values:
        mistakes += [
            f"{_find_source(f'store_{name}', flags, environment)[0]}: {wrong}"
            for name, wrong in build_store_files(values).find_mistakes(values["store"]).items()
        ]
    if {"ordinal", "replicas"} <= values.keys() and values["ordinal"] >= (values["replicas"] or 1):
        source, _ = _find_source("ordinal", flags, environment)
        given = values["replicas"]
        remedy = f"write a number below --replicas, {given}" if given else "give --replicas too, a number above it"
        mistakes.append(f"{source}: '{values['ordinal']}': {remedy}")
    if issubclass(kind, Settings):
        mistakes += _find_key_mistakes(values, flags, environment)
    mistakes += _find_certificate_mistakes(kind, values, flags, environment)
    given = [_find_source(name, flags, environment)[1] for name in ("policy", "kubeconfig")]
    if given == [None, None] and not is_in_cluster(environment):
        remedy = "give --policy or PODGATE_POLICY, or a --kubeconfig to take it from its cluster"
        mistakes.insert(0, f"--policy: missing, and this is no Pod with a service account's token: {remedy}")
    known = {
        name_variable(item.name) for settings in (Settings, ExtenderSettings) for item in fields(settings)
    } | CLIENT_VARIABLES
    mistakes += [
        f"{name}: no such setting: {_suggest(name, known)}see podgate serve --help"
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name)
    ]
    if values.get("context") is not None:
        if values.get("kubeconfig") is None:
            source, _ = _find_source("context", flags, environment)
            mistakes.append(f"{source}: belongs to --kubeconfig: give that too, or leave this out")
        else:
            values["kubeconfig"] = replace(values["kubeconfig"], context=values["context"])
    if mistakes:
        raise UserError("settings:\n" + "\n".join(f"  {mistake}" for mistake in mistakes))
    return kind(**values)


def _suggest(name: str, known: set[str]) -> str:
    from webhook.core.document.yaml.problems import find_close  # noqa: PLC0415  loads slowly, and is for mistakes only

    meant = find_close(name, sorted(known))
    return f"did you mean {meant}? " if meant is not None else ""


def _read_values(
    kind: type[ProcessSettings], flags: Mapping[str, str | None], environment: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the valid values, and the mistakes in the others; each setting is checked by itself."""
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    mode = _read_mode(flags, environment)
    for item in fields(kind):
        declared = item.metadata
        belongs = mode in declared["modes"]
        source, text = _find_source(item.name, flags, environment)
        if text is not None and not belongs:
            modes = " or ".join(declared["modes"])
            mistakes.append(f"{source}: belongs to --client-identity {modes}, and this is {mode}: leave it out")
        if text is None or not belongs:
            text = declared["reduced" if mode is ClientIdentity.REDUCED else "default"]
        if text is None:
            values[item.name] = None
            if belongs and not declared["optional"]:
                flag, variable = name_flag(item.name), name_variable(item.name)
                mistakes.append(f"{flag}: missing: {declared['meaning']}: give {flag} or {variable}")
            continue
        try:
            values[item.name] = declared["read"](text)
        except ValueError as error:
            mistakes.append(f"{source}: {_format_value(text, declared)!r}: {error}")
    return values, mistakes


def _format_value(text: str, declared: Mapping[str, Any]) -> str:
    """Format a value for its error message."""
    if declared["secret"]:
        return mask(text)
    return redact_path(text) if declared["read"] in _PATHS else redact_value(text)


def _find_key_mistakes(
    values: Mapping[str, Any], flags: Mapping[str, str | None], environment: Mapping[str, str]
) -> list[str]:
    """Return the mistakes in the sources of token keys."""
    mistakes = []
    wanted = values.get("cluster_keys", False)
    named = [name for name in ("jwks", "jwks_url") if _find_source(name, flags, environment)[1] is not None]
    if not named and not wanted and _read_mode(flags, environment) is not ClientIdentity.REDUCED:
        remedy = "give one of --jwks, --jwks-url and --cluster-keys true"
        mistakes.append(f"--jwks: missing: nothing says by which keys tokens are verified: {remedy}")
    if "jwks_url" not in named and _find_source("jwks_ca", flags, environment)[1] is not None:
        source, _ = _find_source("jwks_ca", flags, environment)
        mistakes.append(f"{source}: belongs to --jwks-url: give that too, or leave this out")
    if wanted and _find_source("kubeconfig", flags, environment)[1] is None and not is_in_cluster(environment):
        source, _ = _find_source("cluster_keys", flags, environment)
        mistakes.append(f"{source}: 'true': there is no cluster to ask: give a --kubeconfig, or leave this out")
    return mistakes


def _find_certificate_mistakes(
    kind: type[ProcessSettings],
    values: Mapping[str, Any],
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
) -> list[str]:
    """Return the mistakes in the management of certificates and their lifetimes."""
    mistakes = []
    for name in ("certificates", "token_issuer"):
        source, _ = _find_source(name, flags, environment)
        certificates = values.get(name)
        if certificates in {None, Certificates.OFF}:
            continue
        shown = redact_value(str(certificates))
        if _find_source("kubeconfig", flags, environment)[1] is None and not is_in_cluster(environment):
            mistakes.append(f"{source}: {shown!r}: there is no cluster to keep them in: give a --kubeconfig")
        if kind is Settings and values.get("store", MEMORY) != MEMORY:
            remedy = "give it to `podgate controller`, which leads where servers share a store"
            mistakes.append(f"{source}: {shown!r}: a server does this only with --store memory: {remedy}")
    mistakes += _find_caller_mistakes(values, flags, environment)
    mistakes += _find_token_mistakes(values, flags, environment)
    if values.get("token_key_lifetime_seconds", math.inf) < values.get("token_lifetime_seconds", 0):
        mistakes.append("--token-key-lifetime: shorter than --token-lifetime: write at least that")
    for name in ("serving", "client"):
        ca, leaf = f"{name}_ca_lifetime_seconds", f"{name}_lifetime_seconds"
        if {ca, leaf} <= values.keys() and values[ca] < 2 * values[leaf]:
            remedy = f"write at least twice {name_flag(leaf)}"
            mistakes.append(f"{name_flag(ca)}: too short to sign certificates that live {values[leaf]:g}s: {remedy}")
    return mistakes


def _find_caller_mistakes(
    values: Mapping[str, Any], flags: Mapping[str, str | None], environment: Mapping[str, str]
) -> list[str]:
    """Return the mistakes in the renewal of the API server's certificate and token."""
    mistakes = []
    certificates = values.get("certificates")
    if values.get("caller_ports") is not None and certificates is not None:
        source, text = _find_source("caller_ports", flags, environment)
        if certificates is not Certificates.OWN:
            remedy = "leave it out, or write --certificates own"
            mistakes.append(f"{source}: '{text}': belongs to --certificates own, and this is {certificates}: {remedy}")
        elif (lives := values.get("client_lifetime_seconds", math.inf)) < _TURNING_LIFETIME_SECONDS_MIN:
            source, _ = _find_source("client_lifetime_seconds", flags, environment)
            why = "kube-apiserver has a new certificate in both places only after minutes"
            remedy = "write 15m or more, or leave --caller-ports out"
            mistakes.append(f"{source}: {lives:g}s, too short for --caller-ports: {why}: {remedy}")
    if values.get("scheduler_certificates") and certificates not in {None, Certificates.OWN}:
        source, text = _find_source("scheduler_certificates", flags, environment)
        remedy = "leave it out: who manages the other certificates issues these too"
        mistakes.append(f"{source}: '{text}': belongs to --certificates own, and this is {certificates}: {remedy}")
    if values.get("token_issuer") is not None and certificates is Certificates.CERT_MANAGER:
        source, text = _find_source("token_issuer", flags, environment)
        instead = "the cluster's own tokens (--cluster-keys true, podgate apiserver-files --token cluster)"
        remedy = f"leave it out, and take {instead}"
        shown = redact_value(text or "")
        mistakes.append(f"{source}: {shown!r}: its token goes into the Secret that cert-manager writes: {remedy}")
    return mistakes


def _find_token_mistakes(
    values: Mapping[str, Any], flags: Mapping[str, str | None], environment: Mapping[str, str]
) -> list[str]:
    """Return the mistakes in the lifetime of issued tokens, with which every call would be rejected."""
    lives = values.get("token_lifetime_seconds")
    if values.get("token_issuer") is None or lives is None:
        return []
    source, _ = _find_source("token_lifetime_seconds", flags, environment)
    most = values.get("max_token_lifetime_seconds")  # unknown if the servers are other processes
    if lives < _TOKEN_LIFETIME_SECONDS_MIN:
        why = "kube-apiserver has the next one only after a minute and a half"
        return [f"{source}: {lives:g}s, too short for --token-issuer: {why}: write 2m or more"]
    if most is not None and lives > most:
        remedy = "write at most that, or raise --max-token-lifetime"
        return [f"{source}: {lives:g}s, more than --max-token-lifetime ({most:g}s): it would be refused here: {remedy}"]
    return []


def _read_mode(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> ClientIdentity:
    """Return the value of `--client-identity`, on which other settings depend; MUTUAL for an invalid value."""
    text = _find_source("client_identity", flags, environment)[1]
    return ClientIdentity(text) if text in tuple(ClientIdentity) else ClientIdentity.MUTUAL


def _find_source(name: str, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[str, str | None]:
    variable = name_variable(name)
    if flags.get(name) is None and variable in environment:
        return variable, environment[variable]
    return name_flag(name), flags.get(name)
