"""What can be found by its words: the same expressions stand in the GIN indexes and in the queries, or PostgreSQL
would not use the one for the other."""

from __future__ import annotations

from django.contrib.postgres.search import SearchVector
from django.db.models.functions import Left

CONFIG = "english"
SOURCE_CHARS = 100_000
"""A tsvector holds at most a megabyte; what stands behind these characters of a source is not found by its words."""


def words_of(*columns: str, long: str = "") -> SearchVector:
    """The words of some columns; of the `long` one only its beginning."""
    tail = (Left(long, SOURCE_CHARS),) if long else ()
    return SearchVector(*columns, *tail, config=CONFIG)


RUN_WORDS = words_of("title", "guidance")
KERNEL_WORDS = words_of("title", "report", long="source")
HYPOTHESIS_WORDS = words_of("title", "description", "rubric")
FINDING_WORDS = words_of("title", "text")
COMMENT_WORDS = words_of("body")
