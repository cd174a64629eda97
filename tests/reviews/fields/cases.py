"""The files of this folder: the rules of one policy field, then its cases.

A file is YAML of several documents. The first holds the stanzas of service `web`; each other one is a case: the
input, and from `becomes` on its golden part, the result. A refresh writes that part only.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import yaml
from msgspec import Struct

from tests.reviews.fields.yaml_writer import format_document

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.yaml"))

Kind = Literal["absent", "equal", "compatible", "contradicting", "oddity", "undone"]
"""How the Pod relates to the policy; `undone`: a later webhook changes what Podgate wrote."""
NEEDED = frozenset(get_args(Kind)) - {"undone"}

_BETWEEN = "---\n"
_GOLDEN = "becomes:"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # faster, where PyYAML was built with it


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """One Pod of service `web`, in the relevant fields: besides these it has one container without requests.

    `policy` replaces the file's stanzas. `namespace`: the labels of the Namespace. `meanwhile`: fields of the spec that
    another client writes between the two halves, the API server or a later webhook; null removes one.
    """

    kind: Kind
    name: str
    spec: dict[str, Any]
    why: str = ""
    metadata: dict[str, Any] = {}
    policy: dict[str, Any] | None = None
    namespace: dict[str, str] = {}
    meanwhile: dict[str, Any] = {}


class Golden(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The result of a case.

    `becomes`: the fields of the spec that the mutating half changes, null for one that it removes. `verdict` is the
    validating half's; its findings are listed by mode: each a code, and the whole message.
    `metadata`: the labels and annotations that it writes, besides Podgate's own. `refused`: the Pod cannot be read.
    """

    becomes: dict[str, Any] | Literal["unchanged"] = msgspec.field(default_factory=dict)
    verdict: str = ""
    metadata: dict[str, dict[str, str]] = {}
    enforced: list[dict[str, str]] = []
    warned: list[dict[str, str]] = []
    audited: list[dict[str, str]] = []
    refused: str = ""


class Row(Struct, frozen=True):
    """A case, with its stanzas and its golden part."""

    case: Case
    stanzas: dict[str, Any]
    written: Golden | None


def find_policy_path(file: Path) -> str:
    """Return a file's path in the policy: `resources/pod.min.yaml` is about resources.pod.min."""
    return f"{file.parent.name}.{file.name.removesuffix('.yaml')}"


def read_rows(file: Path) -> list[Row]:
    first, *cases = file.read_text(encoding="utf-8").split(_BETWEEN)
    return list(_parse_rows(_read(first), cases))


def _parse_rows(stanzas: dict[str, Any], cases: list[str]) -> Iterator[Row]:
    for text in cases:
        head, golden = _split(text)
        case = msgspec.convert(_read(head), Case)
        written = msgspec.convert(_read(golden), Golden) if golden else None
        yield Row(case, stanzas if case.policy is None else case.policy, written)


def refresh(file: Path, found: Mapping[str, Golden]) -> None:
    """Write the golden parts again, by the names of their cases; the other parts are unchanged."""
    first, *cases = file.read_text(encoding="utf-8").split(_BETWEEN)
    heads = [_split(text)[0] for text in cases]
    written = [head + format_document(msgspec.to_builtins(found[_read(head)["name"]])) for head in heads]
    file.write_text(_BETWEEN.join([first, *written]), encoding="utf-8")


def _split(text: str) -> tuple[str, str]:
    head, mark, golden = text.partition(f"\n{_GOLDEN}")
    return head.rstrip("\n") + "\n", mark.lstrip("\n") + golden


def _read(text: str) -> Any:
    return yaml.load(text, _Loader)  # noqa: S506  both are safe loaders
