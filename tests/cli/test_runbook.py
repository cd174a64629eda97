"""The runbook: an entry for each denial, which begins with a command."""

import re
from pathlib import Path

from webhook.core.findings import Code

RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
DENIALS = RUNBOOK.partition("\n## Denials\n")[2].partition("\n## ")[0]
NO_DENIALS = {Code.REWRITTEN, Code.WOULD_REWRITE}
"""Only warnings about rewritten fields."""


def test_each_denial_has_an_entry_that_begins_with_a_command() -> None:
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", DENIALS, re.MULTILINE | re.DOTALL))
    assert entries.keys() == {str(code) for code in set(Code) - NO_DENIALS}
    assert [name for name, text in entries.items() if not re.search(r"First: `(kubectl|podgate) ", text)] == []
