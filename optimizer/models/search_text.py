"""Define the expressions for full-text search.

The GIN indexes and the queries must use identical expressions, or PostgreSQL does not use the index.
"""

from __future__ import annotations

from django.contrib.postgres.search import SearchVector
from django.db.models.functions import Left

CONFIG = "english"
# A tsvector holds at most one megabyte. Text beyond these characters of a source is not searchable.
SOURCE_CHARS = 100_000


def words_of(*columns: str, long: str = "") -> SearchVector:
    """Build the search vector of some columns; of the `long` column only its first `SOURCE_CHARS` characters."""
    # A tsvector may have at most one megabyte; an oversized source would make the insert fail.
    tail = (Left(long, SOURCE_CHARS),) if long else ()
    return SearchVector(*columns, *tail, config=CONFIG)


RUN_WORDS = words_of("title", "guidance")
KERNEL_WORDS = words_of("title", "report", long="source")
HYPOTHESIS_WORDS = words_of("title", "description", "rubric")
FINDING_WORDS = words_of("title", "text")
PROBLEM_WORDS = words_of("title", "slug")
COMMENT_WORDS = words_of("body")
