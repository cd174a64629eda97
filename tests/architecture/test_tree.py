"""The tree: few rooms that import one way, unique class names, and charters."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCES, nodes_of, parsed, place, text_of

MODULES_MAX = 955
FOLDERS_MAX = 95
TINY_MODULES_MAX = 70
TINY_LINES = 40
CONTAINERS = ("webhook", "webhook.core", "certs")
"""Their modules are layers of their own; the import contracts order them."""
QUESTION = re.compile(r"(What|Who|Whom|Whose|How|Where|Whether|Why|When|Whatever|Whoever)\b")


def format_module(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {format_module(path): path for path in SOURCES}


def find_folder(module: str) -> str:
    return module if MODULES[module].stem == "__init__" else module.rpartition(".")[0]


def list_imports(path: Path) -> Iterator[str]:
    """Yield the modules of the tree that a module imports, also within functions."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            found = {name if name in MODULES else node.module for name in named}
            yield from (name for name in found if name in MODULES)


def test_the_tree_has_few_rooms_and_few_tiny_modules() -> None:
    modules = [path for path in SOURCES if path.stem != "__init__"]
    tiny = [path for path in modules if len(text_of(path).splitlines()) < TINY_LINES]
    assert len(modules) <= MODULES_MAX
    assert len({path.parent for path in SOURCES}) <= FOLDERS_MAX
    assert len(tiny) <= TINY_MODULES_MAX


def test_no_two_folders_import_each_other() -> None:
    edges = {(find_folder(name), find_folder(found)) for name, path in MODULES.items() for found in list_imports(path)}
    pairs = {(one, other) for one, other in edges if one < other and (other, one) in edges}
    assert {pair for pair in pairs if not set(pair) & set(CONTAINERS)} == set()


def test_a_package_defines_nothing_by_itself() -> None:
    """A reader looks for a class in a module of its name."""
    allowed = (ast.Import, ast.ImportFrom)
    found = {}
    for path in SOURCES:
        if path.stem == "__init__":
            body = parsed(path).body[1:]  # without the charter
            others = [node for node in body if not isinstance(node, allowed)]
            found[place(path)] = [node for node in others if "__all__" not in ast.unparse(node)]
    assert {name: nodes for name, nodes in found.items() if nodes} == {}


def test_a_public_class_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place(path))
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_charter_names_the_content_of_its_module() -> None:
    charters = {place(path): (ast.get_docstring(parsed(path)) or "").splitlines()[0] for path in SOURCES}
    placeholder = re.compile(r"(TODO|FIXME|XXX)\b|\W*$")
    found = {name for name, charter in charters.items() if QUESTION.match(charter) or placeholder.match(charter)}
    assert found == set()


TEXTS = frozenset(
    ["reason", "message", "error", "cause", "failure", "detail", "fault", "trouble", "complaint", "obstacle"]
)
"""Names of texts for people."""
PARSING = frozenset(
    ["startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "rfind", "index", "count"]
)
MATCHING = frozenset({"search", "match", "fullmatch", "findall", "finditer", "split"})
FOREIGN = {
    "webhook/adapters/kubernetes/api/field_faults.py": "msgspec names the field only in its text",
    "webhook/adapters/kubernetes/cluster_facts/probing.py": "labels of a server's metrics, perhaps of another version",
    "webhook/adapters/kubernetes/cluster_objects.py": "the API server names field managers only in its text",
    "webhook/adapters/kubernetes/events/event_sender.py": "the API server, of a Namespace that is being deleted",
    "webhook/adapters/kubernetes/pod_gates.py": "the API server, of a denial by another webhook",
    "webhook/commands/decode_errors.py": "msgspec names the field only in its text",
    "webhook/core/checks/services.py": "an Event of the workload controller",
    "webhook/core/checks/store.py": "the status page of a server, which shows the text alone",
    "webhook/core/diagnosis/container_causes.py": "the kubelet, of a container",
    "webhook/core/diagnosis/denial_causes.py": "an Event of the workload controller",
    "webhook/core/diagnosis/extender_words.py": "an Event of kube-scheduler",
    "webhook/core/diagnosis/kubelet_causes.py": "an Event of the kubelet",
    "webhook/core/diagnosis/refusals.py": "an Event of the workload controller",
    "webhook/core/diagnosis/workload_diagnosis.py": "an Event of the workload controller",
    "webhook/core/installation/probe.py": "the API server, of a webhook that it cannot call",
    "webhook/core/pods/variant_pod.py": "kube-scheduler, of a Pod that waits for a volume",
    "webhook/core/pod_rules/view.py": "msgspec names the field only in its text",
    "webhook/core/pod_rules/environment.py": "the CEL library names the kind of a mistake only in its text",
    "webhook/core/outcomes.py": "msgspec names the field only in its text",
    "webhook/operations/extender_proof.py": "an Event of kube-scheduler",
    "webhook/policy_tests/comparison.py": "a test expects a part of a message",
    "webhook/replay/events.py": "msgspec names the field only in its text",
    "webhook/server/handshake_throttle.py": "OpenSSL's code of an error",
    "webhook/support/event_loop.py": "uvloop gives up a connection with a RuntimeError",
}
"""Modules that read the words of another program, which gives no value beside them, and whose they are."""


def is_text_for_people(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in TEXTS
        case ast.Call(func=ast.Name(id="str"), args=[one]):
            return is_text_for_people(one)
        case ast.BoolOp(values=values):
            return any(map(is_text_for_people, values))
    return False


def parses_text(node: ast.AST) -> bool:
    """Return whether a text for people is read by its words; to join its lines is no reading."""
    match node:
        case ast.Call(func=ast.Attribute(attr="split"), args=[]):
            return False
        case ast.Call(func=ast.Attribute(value=text, attr=method)) if method in PARSING and is_text_for_people(text):
            return True
        case ast.Call(func=ast.Attribute(attr=method), args=[text, *_]) if method in MATCHING:
            return is_text_for_people(text)
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[text]):
            return is_text_for_people(text)
    return False


def test_no_code_parses_a_text_for_people() -> None:
    """The class of a failure is a value beside its text: an enum, or an attribute of the exception or record."""
    places = [
        (place(path), node.lineno)
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.expr) and parses_text(node)
    ]
    assert [f"{path}:{line}" for path, line in places if path not in FOREIGN] == []
    assert set(FOREIGN) - {path for path, _ in places} == set()


@pytest.mark.parametrize(
    "code",
    [
        'reason.startswith("script:")',
        'error.reason.partition(":")',
        'str(error).split(": ")',
        '"closed" in failure.message',
        '(event.message or "").endswith("x")',
        "PATTERN.search(str(error.cause))",
    ],
)
def test_a_parsed_text_is_found(code: str) -> None:
    assert parses_text(ast.parse(code, mode="eval").body)


def test_no_test_module_is_imported_by_another() -> None:
    """Shared helpers stand in a module of their own beside the tests, or in `tests/harness`."""
    importing = re.compile(r"^ *(?:from|import) (tests\.[\w.]*\btest_\w+)", re.MULTILINE)
    texts = {place(path): path.read_text() for path in ROOT.glob("tests/**/*.py")}
    found = {name: match for name, text in texts.items() if (match := importing.findall(text))}
    assert found == {}
