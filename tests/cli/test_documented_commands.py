"""Each command in the documents exists, with its options: of Podgate by its own parser, of others by their verbs."""

import re
from collections.abc import Iterator

import click
import pytest

from tests.cli.documented_commands import PAGES, ROOT, Command, find_documented, flags_in_spans
from webhook.cli import root
from webhook.cli.queue import QueueGroup

COMMANDS = find_documented()
OURS = [command for command in COMMANDS if command.words[0] == "podgate"]
OTHERS = [command for command in COMMANDS if command.words[0] != "podgate"]
OWN_COMMANDS_MIN = 50
VERBS = {
    "kubectl": {
        *(
            "annotate",
            "api-resources",
            "apply",
            "auth",
            "cordon",
            "create",
            "debug",
            "delete",
            "describe",
            "diff",
            "edit",
            "explain",
            "get",
        ),
        *("kustomize", "label", "logs", "patch", "port-forward", "rollout", "scale", "top", "uncordon"),
    },
    "helm": {"install", "template", "uninstall", "upgrade"},
    "redis-cli": {"--cluster", "--latency", "-u", "BGREWRITEAOF", "CONFIG", "slowlog"},
    "docker": {"build", "compose"},
    "gh": {"attestation"},
    "cosign": {"verify", "verify-attestation"},
}
SHELL = {
    *(
        "base64",
        "cd",
        "curl",
        "done",
        "eval",
        "export",
        "for",
        "grep",
        "head",
        "kill",
        "od",
        "prometheus",
        "pytest",
        "python",
        "rm",
    ),
    *("echo", "openssl", "sed", "sleep", "tr", "true", "umask", "until"),
}
"""Words of the shell, and programs whose arguments are checked nowhere but in tests that run the block."""

FLAGS_OF_OTHERS = {
    "--admission-control-config-file": "kube-apiserver",
    "--create-namespace": "helm",
    "--enable-certificate-owner-ref": "cert-manager",
    "--field-manager": "kubectl",
    "--server-side": "kubectl",
    "--take-ownership": "helm",
}


def names(command: Command) -> str:
    return str(command)


def resolve(words: tuple[str, ...]) -> tuple[click.Context, list[str]]:
    """Return the context of a command of Podgate and its arguments; UsageError if there is no such command."""
    context = click.Context(root, info_name="podgate", **root.context_settings)
    arguments = list(words[1:])
    while isinstance(context.command, click.Group):
        if isinstance(context.command, QueueGroup) and (not arguments or arguments[0] not in context.command.commands):
            arguments.insert(0, context.command.default)
        if not arguments or arguments[0].startswith("-"):
            break
        name, command, arguments = context.command.resolve_command(context, arguments)
        assert command is not None
        context = click.Context(command, parent=context, info_name=name)
    return context, arguments


def parse(context: click.Context, arguments: list[str]) -> None:
    """Parse as the command line does, without reading files; UsageError as a user would get it."""
    found, _, _ = context.command.make_parser(context).parse_args(list(arguments))
    for parameter in context.command.get_params(context):
        given = found.get(parameter.name or "")  # None of an option that is not given
        if parameter.required and (given is None or parameter.value_is_missing(given)):
            raise click.MissingParameter(ctx=context, param=parameter)
        if isinstance(parameter.type, click.Choice) and isinstance(given, str):
            parameter.type.convert(given, parameter, context)


def flags_of(command: click.Command) -> Iterator[str]:
    """Yield the flags of a command and of those below it."""
    context = click.Context(command, **root.context_settings)  # a command keeps its help option
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from flags_of(child)


@pytest.mark.parametrize("command", [command for command in OURS if command.is_whole], ids=names)
def test_command_to_type_is_complete(command: Command) -> None:
    context, arguments = resolve(command.words)
    assert not isinstance(context.command, click.Group)
    if arguments[-1:] == ["..."]:
        assert has_known_options(context, arguments)
    else:
        parse(context, arguments)


@pytest.mark.parametrize("command", [command for command in OURS if not command.is_whole], ids=names)
def test_command_of_a_code_span_exists_with_its_options(command: Command) -> None:
    assert has_known_options(*resolve(command.words))


def has_known_options(context: click.Context, arguments: list[str]) -> bool:
    options = {"--help", *(option for parameter in context.command.get_params(context) for option in parameter.opts)}
    return {word.partition("=")[0] for word in arguments if re.match(r"--?[a-zA-Z]", word)} <= options


@pytest.mark.parametrize("command", OTHERS, ids=names)
def test_command_of_another_program_has_a_verb_of_that(command: Command) -> None:
    program, *arguments = command.words
    if program == "make":
        targets = re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in arguments if not word.startswith("-") and "=" not in word} <= {*targets}
    elif program in VERBS:
        assert [word for word in arguments if word in VERBS[program]], f"{arguments}: no verb of {program}"
    else:
        assert program in SHELL


def test_files_of_the_tree_exist() -> None:
    words = {word for command in COMMANDS for word in command.words if re.match(r"(docs|manifests|tests)/[^$]*$", word)}
    assert words
    assert [word for word in sorted(words) if not (ROOT / word).exists()] == []


def test_flag_of_a_code_span_exists() -> None:
    flags = {*flags_of(root), *FLAGS_OF_OTHERS}
    assert [(page, flag) for page, flag in sorted(flags_in_spans()) if flag not in flags] == []


def test_commands_are_found() -> None:
    assert len(PAGES) > 1
    assert len(OURS) > OWN_COMMANDS_MIN


@pytest.mark.parametrize(
    "words",
    [
        ("podgate", "statuss"),
        ("podgate", "status", "--servers", "http://127.0.0.1:1"),
        ("podgate", "status", "-o", "tables"),
        ("podgate", "breaker", "reset"),
        ("podgate", "policy", "wait"),
        ("podgate", "replay", "events.jsonl"),
    ],
)
def test_wrong_command_is_found(words: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        parse(*resolve(words))
