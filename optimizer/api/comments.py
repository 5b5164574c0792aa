"""Edit one's own comments, and delete one's own drafts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Status

from optimizer.access import access_comment
from optimizer.actions.review import MAX_COMMENT
from optimizer.actions.thread import do_delete_draft, do_edit_comment
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.discussion import CommentOut
from optimizer.api.errors import Refusal
from optimizer.models import TokenScope

router = Router(tags=["discussion"], auth=needs(TokenScope.REVIEW))


class WordsIn(Body):
    """Hold the new text of the comment, in Markdown."""

    body: str = Field(min_length=1, max_length=MAX_COMMENT)


@router.put("/{int:run_id}/comments/{int:comment_id}", response={200: CommentOut, 422: Refusal})
def edit_comment(request: HttpRequest, run_id: int, comment_id: int, body: WordsIn) -> Any:
    """Change the text. The earlier text of a published comment stays readable on its page."""
    comment = access_comment(caller(request), run_id, comment_id)
    return do_edit_comment(caller(request), comment, body.body)


@router.delete("/{int:run_id}/comments/{int:comment_id}", response={204: None, 422: Refusal})
def delete_draft(request: HttpRequest, run_id: int, comment_id: int) -> Any:
    """Delete a draft. Answers 422 for a published comment."""
    do_delete_draft(caller(request), access_comment(caller(request), run_id, comment_id))
    return Status(204, None)
