"""Policy checks of a process of the fork server: forked from it, because most CPU of a small check is imports."""

import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from webhook.adapters.policy_process import child, parent


class ForkedCheck(subprocess.Popen[bytes]):
    """A process of `command`; the one of a policy check runs in a fork of this process in place of a new Python.

    The fork has the intervals of this process, so that it also stands for the child that short_intervals.py names.
    """

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **options: Any) -> None:
        usual = (parent.PolicyProcess.__init__.__defaults__ or ())[0]
        task = command[len(usual) :]
        if (*command,) == (*usual, *task):
            options["preexec_fn"] = partial(_check, task, dict(env))
        super().__init__(command, env=env, **options)


class _Subprocess:
    """The part of the module `subprocess` that `parent` uses."""

    Popen = ForkedCheck
    TimeoutExpired = subprocess.TimeoutExpired


def fork_policy_checks() -> None:
    """Let policy checks of this process be forked from it."""
    vars(parent)["subprocess"] = _Subprocess


def _check(task: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Do what the child process does; its pipes and its session are set already."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    try:
        with open(0, closefd=False) as sys.stdin, open(1, "w", closefd=False) as sys.stdout:
            child.main(*task)
    except BaseException:  # noqa: BLE001  it is this process's last
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
