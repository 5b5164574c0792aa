"""Provide the shipped knowledge of hardware and kernel techniques: pages with sources and a tested snippet each.

The pages are Markdown files below `pages/`, see `optimizer.knowledge.library`. Nothing here needs Django.
"""

from optimizer.knowledge.library import Page, page, pages
from optimizer.knowledge.search import Task, pages_for, search_knowledge

__all__ = ["Page", "Task", "page", "pages", "pages_for", "search_knowledge"]
