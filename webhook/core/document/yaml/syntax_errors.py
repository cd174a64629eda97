"""YAML syntax errors as position, reason and remedy, for libyaml's parser and PyYAML's own."""

import re
from typing import Any, NamedTuple

import yaml

LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:[.$]\w|\"|/\*|(?:if|else|end|range|with|include|define|template|block|tpl|toYaml|default|quote"
    r"|required|lookup|printf)\b)|\{%-?\s*\w"
)
_COMMENT = re.compile(r"(?:^|\s)#")
_INDICATORS = "@`%*&!|>{}[],#?-\"'"  # a plain value cannot begin with these

_INDENT = "align it with the fields that it belongs to"
_WORDS: tuple[tuple[str, str, str], ...] = (
    # a part of either parser's message, reason, remedy; the first match applies
    ("tab character", "a tab cannot indent YAML", "use spaces"),
    ("found undefined alias", "the anchor is not defined above", "define the anchor above its first use"),
    ("while scanning an alias", "* begins an alias, and no name follows", "quote the value"),
    ("while scanning an anchor", "& begins an anchor, and no name follows", "quote the value"),
    ("while scanning a quoted scalar: found unexpected end", "the quote is never closed", "close it"),
    (
        "unknown escape character",
        "not an escape sequence of double quotes",
        "write the backslash twice, or use single quotes",
    ),
    ("escape code", "not the code of a character", "write the character itself"),
    ("hexdecimal", "not the code of a character", "write the character itself"),
    ("hexadecimal", "not the code of a character", "write the character itself"),
    ("escape sequence of", "not the code of a character", "write the character itself"),
    ("found unexpected ':'", "a colon before a bracket or comma", "write a space after it, or quote the value"),
    ("while parsing a flow sequence", "the list in [...] is not closed, or lacks a comma", "write `,` or `]` here"),
    ("while parsing a flow mapping", "the mapping in {...} is not closed, or lacks a comma", "write `,` or `}` here"),
    ("found undefined tag handle", "the tag has no meaning here", "remove the tag"),
    ("constructor for the tag", "the tag has no meaning here", "remove the tag"),
    ("unhashable key", "a key must be plain text", "write a name, a colon and the value"),
    ("not of the type", "not a value of the type that the tag names", "remove the tag"),
    ("no such number", "a number that JSON does not have", "quote the value"),
    ("base64", "not base64", "remove the tag, or write base64"),
    ("for merging", "a merge key takes a mapping", "write `<<: *ALIAS`"),
    ("characters are not allowed", "a character that YAML does not allow", "remove it"),
    ("could not find expected ':'", "a line without a colon, where a field belongs", "write `NAME: VALUE`"),
    ("mapping values are not allowed", "a colon where no field can begin", "quote the value, or fix the indentation"),
    ("while parsing a block mapping", "not aligned with the fields above", _INDENT),
    ("while parsing a block collection", "not aligned with the list above", "align it with the entries of the list"),
    ("block sequence entries are not allowed", "a list cannot begin here", "begin it on a line of its own"),
    ("while parsing a flow node", "a value or a closing bracket is missing", "write it"),
    ("expected node content", "a value is missing", "write it"),
    ("expected the node content", "a value is missing", "write it"),
    ("document start", "text after the end of the document", "remove it, or begin a new document with `---`"),
    ("while scanning a directive", "% at the beginning of a line is a directive", "remove the line"),
    ("directive", "not a directive that this version supports", "remove the line"),
    ("incompatible YAML document", "not a supported version of YAML", "remove the line"),
    ("cannot start any token", "a plain value cannot begin with this character", "quote the value"),
)
_UNCLOSED = frozenset(
    {
        "while scanning a quoted scalar: found unexpected end",
        "while parsing a flow sequence",
        "while parsing a flow mapping",
    }
)
"""Parts of messages about something that began in an earlier line."""


class SyntaxProblem(NamedTuple):
    """Position, reason and remedy of a syntax error; line and column count from 1."""

    line: int
    column: int
    reason: str
    remedy: str


def describe_syntax_error(error: yaml.YAMLError, text: str) -> SyntaxProblem:
    """Return the problem of a syntax error. The marks of PyYAML's two parsers share no type."""
    template = find_template(text)
    if template is not None:
        return template
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    began: Any = getattr(error, "context_mark", None)
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    if isinstance(error, yaml.reader.ReaderError):
        before = LINE_END.split(text[: error.position])
        line, column = len(before) - 1, len(before[-1])
    lines = LINE_END.split(text)
    here = lines[line] if line < len(lines) else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    words = f"{getattr(error, 'context', None) or ''}: {problem}"
    known = ((part, why, cure) for part, why, cure in _WORDS if part in words)
    part, reason, remedy = next(known, ("", f"not YAML: {problem}", ""))
    if here[column : column + 1] == "\t" and not here[:column].strip():
        reason, remedy = "a tab cannot indent YAML", "use spaces"
    elif began is not None and began.line != line and part in _UNCLOSED:
        reason += f" (it began in line {began.line + 1})"
    remedy = remedy or (
        "quote the value"
        if here[column : column + 1] in set(_INDICATORS)
        else "fix brackets, quotes, colons and indentation here or in the line above"
    )
    return SyntaxProblem(line + 1, column + 1, " ".join(reason.split()), remedy)


def find_template(text: str) -> SyntaxProblem | None:
    """Return the problem of an unrendered template; None if the text is not a template."""
    for found in _TEMPLATE.finditer(text):
        lines = LINE_END.split(text[: found.start()])
        if not _COMMENT.search(lines[-1]):
            tool = "Helm or Go" if found[0].startswith("{{") else "Jinja"
            reason, remedy = f"this looks like a {tool} template", "render it first, and give the result"
            return SyntaxProblem(len(lines), len(lines[-1]) + 1, reason, remedy)
    return None
