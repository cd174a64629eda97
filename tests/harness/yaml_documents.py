"""YAML documents, read by libyaml where PyYAML was built with it: a test parses the same files again and again."""

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_documents(text: str) -> list[Any]:
    """Return the documents of a stream, without empty ones."""
    return [document for document in yaml.load_all(text, _LOADER) if document]
