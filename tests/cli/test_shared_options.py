"""Options that mean the same for every command: the cluster, the form of the output, and variables."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from tests.cli.command_runner import podgate
from webhook.app.scheduling import extender_ports
from webhook.cli import root
from webhook.cli.options.command_group import REPORT_FORMATS, TABLE_FORMATS
from webhook.commands.clients import status_client
from webhook.operations import decision_port
from webhook.settings import CLIENT_VARIABLES, ExtenderSettings, Settings, name_variable

DOCUMENTS = ("yaml", "json")
FILES_OF_OTHERS = {"scheduler config": "the kubeconfig is a file of kube-scheduler, which has no option for a context"}
OWN_FORMS = {"review": "diff, yaml, json or patch of each object"}
SETTINGS = {name_variable(item.name) for kind in (Settings, ExtenderSettings) for item in fields(kind)}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its path: a new one is found here."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(root))  # type: ignore[arg-type]  # a group


def options(command: click.Command) -> dict[str, click.Parameter]:
    return {flag: option for option in command.params for flag in option.opts if flag.startswith("-")}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_that_takes_a_kubeconfig_takes_a_context(name: str) -> None:
    found = options(COMMANDS[name])
    if name not in FILES_OF_OTHERS:
        assert ("--kubeconfig" in found) == ("--context" in found)


def test_some_commands_take_a_kubeconfig() -> None:
    taking = {name for name, command in COMMANDS.items() if "--kubeconfig" in options(command)}
    assert {"status", "explain", "check", "decisions", "queue drop", "serve", "apiserver-files"} <= taking


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if "--output" in options(command)])
def test_form_of_the_output_is_a_table_a_report_or_a_document(name: str) -> None:
    """By default a table is JSON in a pipe; a report is text there, and a document YAML, as on a terminal."""
    option = options(COMMANDS[name])["--output"]
    assert isinstance(option.type, click.Choice)
    forms = tuple(option.type.choices)
    if name in OWN_FORMS:
        return
    if "text" in forms:
        assert (forms[: len(REPORT_FORMATS)], option.default) == (REPORT_FORMATS, "text")
    elif "table" in forms:
        assert forms == TABLE_FORMATS
        assert not isinstance(option.default, str)
        assert isinstance(option, click.Option)
        assert option.help == "[default: table on a terminal, json elsewhere]"
    else:
        assert forms == DOCUMENTS


@pytest.mark.parametrize("name", COMMANDS)
def test_variable_of_an_option_stops_no_process(name: str) -> None:
    variables = {str(option.envvar) for option in COMMANDS[name].params if option.envvar}
    assert variables <= {"KUBECONFIG", *CLIENT_VARIABLES, *SETTINGS}


def test_client_variables_are_those_of_commands() -> None:
    used = {str(option.envvar) for command in COMMANDS.values() for option in command.params if option.envvar}
    assert used >= CLIENT_VARIABLES


@pytest.mark.parametrize("command", [("status",), ("queue", "list"), ("decisions",), ("nodes",), ("explain", "u")])
def test_context_that_is_not_there_is_named(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (decision_port, extender_ports):
        monkeypatch.setattr(module, "DEFAULT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(status_client, "DEFAULT_SERVER", "http://127.0.0.1:1")
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: []\nclusters: []\n")
    done = podgate(*command, "--kubeconfig", path, "--context", "prod-eu-1")
    assert done.code in {2, 4}
    assert "prod-eu-1" in done.err
