"""Policy document: parsed from bytes to frozen types, or to all problems with line, column and remedy."""

from webhook.core.document.feature_gates import Purpose
from webhook.core.document.loading import LoadResult, load
from webhook.core.document.rendering import render
from webhook.core.document.schema import build_written_schema as schema
from webhook.core.document.yaml.problems import DocumentError, Problem

__all__ = ["DocumentError", "LoadResult", "Problem", "Purpose", "load", "render", "schema"]
