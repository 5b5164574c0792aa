"""Map the addresses of diffs, threads and suggested edits."""

from __future__ import annotations

from django.urls import path

from optimizer.views import diff_page, review, suggestion

KERNEL = "runs/<int:run_id>/kernels/<int:number>"

urlpatterns = [
    path(f"{KERNEL}/diff/", diff_page.diff_page, name="diff_page"),
    path(f"{KERNEL}/diff/rows/", diff_page.diff_rows, name="diff_rows"),
    path(f"{KERNEL}/suggest/", suggestion.suggest, name="suggest"),
    path("runs/<int:run_id>/discussion/", review.discussion, name="discussion"),
    path("runs/<int:run_id>/reviews/publish/", review.review_publish, name="review_publish"),
    path("runs/<int:run_id>/threads/preview/", review.comment_preview, name="comment_preview"),
    path("runs/<int:run_id>/threads/new/", review.thread_new, name="thread_new"),
    path("runs/<int:run_id>/threads/<int:thread_id>/", review.thread_page, name="thread_page"),
    path("runs/<int:run_id>/threads/<int:thread_id>/reply/", review.thread_reply, name="thread_reply"),
    path("runs/<int:run_id>/threads/<int:thread_id>/state/", review.thread_state, name="thread_state"),
    path(
        "runs/<int:run_id>/comments/<int:comment_id>/measure/", suggestion.comment_measure, name="comment_measure"
    ),
    path("runs/<int:run_id>/comments/<int:comment_id>/edit/", review.comment_edit, name="comment_edit"),
    path("runs/<int:run_id>/comments/<int:comment_id>/delete/", review.comment_delete, name="comment_delete"),
]
