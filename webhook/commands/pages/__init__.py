"""Pages that commands print: tables, diffs, YAML and reports."""
