"""Shell commands of remedies, built from the record, address, certificates and store of an installation."""

import re
from collections.abc import Iterable, Iterator
from shlex import quote
from urllib.parse import urlsplit

from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.repair_installation import (
    SERVER,
    USUAL,
    find_address,
    find_argument,
    find_deployment,
    is_of_chart,
    is_reduced,
    list_containers,
    manager_of,
    record_of,
)
from webhook.core.document.configmap import KEY, LAST_GOOD, NAME, NAMESPACE
from webhook.core.installation.objects import FIELD_MANAGER
from webhook.core.installation.record import InstallationRecord
from webhook.core.installation.ways import CERT_MANAGER, FILES, OWN, REDIS, REDUCED
from webhook.core.webhook_configurations import leaves_out_no_call

RENDERED = (
    "render and apply the webhooks from the live policy, in the folder that has pki/ if the certificates are yours"
)
_SCHEDULER, _NODE_AGENT = "podgate-scheduler", "podgate-apiserver-files"
_HAS_PKI = "ls pki/ca.crt > /dev/null"
"""Ends a command in another folder, where it would create a CA that nobody trusts."""
_CA = {"ca.crt": "pki/ca.crt", "serving-ca.crt": "pki/ca.crt"}
_FILES_OF_SECRETS = {"podgate-tls": {"tls.crt": "pki/server.crt", "tls.key": "pki/server.key", **_CA}}
"""Keys and files of manifests/README.md."""
_STORE, _CERTIFICATES = "--store", "--certificates"
_CONNECTING = re.compile(r"\b(kubectl|podgate install|podgate override|podgate breaker reset)(?![\w-])")
"""Commands that connect to the cluster."""


def build_render_command(facts: ClusterFacts) -> str:
    """Return the command that writes the webhooks as the live policy and this installation need them."""
    options = [*_list_target_options(facts), *_list_trust_options(facts)]
    options += ["--path-file pki/path"] if is_reduced(facts) else []
    options += ["--all-calls"] if leaves_out_no_call(facts.webhooks) else []
    manager = "" if record_of(facts) is None else f" --field-manager={FIELD_MANAGER}"
    return (
        f"{_build_read_command(NAME)} | podgate policy webhooks --policy - {' '.join(options)}"
        f" | kubectl apply --server-side --force-conflicts{manager} -f -"
    )


def build_install_command(facts: ClusterFacts, *more: str) -> str:
    """Return the command that repeats `podgate install`; "" by hand, or if the store cannot be named in it."""
    record = record_of(facts)
    if record is None:
        return ""
    if record.server_url:
        if record.mode == REDIS or more:  # its store is known to the server only
            return ""
        urls = f"--server-url {quote(record.server_url)}"
        return f"{_HAS_PKI} && podgate install {urls} --status-url {quote(record.status_url)}"
    words = ["podgate install", *_list_way_options(record)]
    if record.mode == REDIS:
        store = find_argument(facts, _STORE)
        if not store or urlsplit(store).password is not None:
            return ""
        words.append(f"{_STORE} {quote(store)}")
    for name, option in ((SERVER, "--image"), (_SCHEDULER, "--scheduler-image")):
        words += [
            f"{option} {quote(container.image)}" for container in list_containers(facts, name)[:1] if container.image
        ]
    servers = find_deployment(facts, SERVER)
    words += [f"--replicas {servers.spec.replicas}"] if servers is not None and record.mode == REDIS else []
    words += ["--apiserver-files"] if any(daemon_set.name == _NODE_AGENT for daemon_set in facts.daemon_sets) else []
    wanted = ["--with-scheduler"] if record.scheduler else []
    command = " ".join(dict.fromkeys([*words, *wanted, *more]))
    return f"{_HAS_PKI} && {command}" if record.certificates == FILES else command


def build_restore_command(facts: ClusterFacts, files: Iterable[str]) -> str:
    """Return the command that restores objects of the manifests: by `podgate install`, or by hand from files."""
    if record_of(facts) is not None:
        return build_install_command(facts)
    named = " ".join(f"-f manifests/{file}" for file in dict.fromkeys(files))
    return "" if is_of_chart(facts) or not named else f"kubectl apply --server-side --force-conflicts {named}"


def describe_restore(facts: ClusterFacts) -> str:
    """Describe how this installation's objects are restored."""
    if record_of(facts) is not None:
        again = "repeat podgate install with the options that were given"
        return f"{again}; fields that another has written since are overwritten with --force-conflicts only"
    if is_of_chart(facts):
        return "repeat helm upgrade with the values of the release"
    return "apply the manifests of this version, in the root of the repository"


def add_store_command(facts: ClusterFacts, command: str, secret: str) -> str:
    """Return a command that changes files of pki/, and then stores them where the servers read them."""
    record, guarded = record_of(facts), f"{_HAS_PKI} && {command}"
    if record is not None and record.server_url:  # its server reads these files
        return guarded
    again = (
        build_install_command(facts).removeprefix(f"{_HAS_PKI} && ")
        if record is not None
        else _build_secret_command(secret)
    )
    return f"{guarded} && {again}" if again else ""


def _build_secret_command(secret: str) -> str:
    """Return the command that replaces a Secret by files of pki/."""
    files = _FILES_OF_SECRETS.get(secret)
    if files is None:
        return ""
    named = " ".join(f"--from-file={key}={file}" for key, file in files.items())
    created = f"kubectl create secret generic {secret} -n {NAMESPACE} {named} --dry-run=client -o yaml"
    return f"{created} | kubectl apply --server-side --force-conflicts -f -"


def build_policy_command() -> str:
    """Return the command that creates the policy again as it was last in force."""
    created = f"kubectl create configmap {NAME} -n {NAMESPACE} --from-file={KEY}=/dev/stdin"
    return f'policy="$({_build_read_command(LAST_GOOD)})" && printf "%s\\n" "$policy" | {created}'


def _build_read_command(config_map: str) -> str:
    return (
        f"kubectl get configmap {config_map} -n {NAMESPACE} -o 'jsonpath={{.data.{KEY.replace('.', chr(92) + '.')}}}'"
    )


def _list_way_options(record: InstallationRecord) -> Iterator[str]:
    is_reduced = record.mode == REDUCED
    if is_reduced:
        yield "--reduced"
    if record.certificates != (FILES if is_reduced else OWN):
        yield f"{_CERTIFICATES} {record.certificates}"


def _list_target_options(facts: ClusterFacts) -> Iterator[str]:
    url, service = find_address(facts)
    if url:
        yield f"--url {quote(url)}"
    elif service != USUAL:
        yield f"--service {service[0]}/{service[1]}:{service[2]}"


def _list_trust_options(facts: ClusterFacts) -> Iterator[str]:
    yield "--without-ca" if manager_of(facts) in {OWN, CERT_MANAGER} else "--ca pki/ca.crt"


def add_context(command: str, context: str) -> str:
    """Return a command that uses a context of the kubeconfig, "" for the current one."""
    return _CONNECTING.sub(rf"\1 --context {quote(context)}", command) if context else command
