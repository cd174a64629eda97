"""Rules of `parts`: names that tell the parts apart by the names of their services, and pools that exist."""

from collections.abc import Iterator

from webhook.core.document.rules.services import read_items, read_name
from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem, suggest


def parts_are_told_apart(document: DocumentPart) -> Iterator[Problem]:
    """`parts[].name`: not NAME-... of another part's NAME, which begins the names of that part's services."""
    names = [(name, name.read(str)) for name in document.select("parts", "*", "name")]
    for name, text in names:
        for _, other in names:
            if text.startswith(f"{other}-"):
                reason = f"services of part {other} may have this name: their names begin with {other}-"
                yield name.report(reason, "choose names of which none begins another")


def pools_of_parts_exist(document: DocumentPart) -> Iterator[Problem]:
    """`parts[].pools`: names of `pools`. Refuse another name."""
    defined = document.get("pools")
    pools = [] if defined is None else [read_name(part) for part in read_items(defined)]
    for chosen in document.select("parts", "*", "pools", "*"):
        if chosen.read(str) not in pools:
            yield chosen.report("no such pool", suggest(chosen.read(str), pools, "pools has"))
