"""Define the database schema, one noun per module."""

from optimizer.models.ahead import AheadBatch
from optimizer.models.api_token import ApiToken, TokenScope
from optimizer.models.audit import AuditAction, AuditEntry
from optimizer.models.campaign import (
    Campaign,
    CampaignCell,
    CampaignConfiguration,
    CampaignState,
    CampaignTiming,
)
from optimizer.models.choices import (
    AuthorKind,
    CallState,
    EvaluationPurpose,
    EvaluationState,
    EvaluationStatus,
    HypothesisKind,
    JobState,
    ObjectiveChoice,
    RunState,
    TeamRole,
    ToolState,
    VerdictChoice,
)
from optimizer.models.endtoend import EndToEndReport
from optimizer.models.evaluation import Evaluation, Measurement
from optimizer.models.event import RunEvent
from optimizer.models.finding import Finding
from optimizer.models.guidance import Guidance
from optimizer.models.hypothesis import Hypothesis
from optimizer.models.idempotency import IdempotencyKey
from optimizer.models.invitation import Invitation
from optimizer.models.job import Job, JobLog
from optimizer.models.kernel import Kernel, KernelParent
from optimizer.models.llm_call import LlmCall
from optimizer.models.notification import Follow, Notification, NotificationChoice, NotificationKind
from optimizer.models.problem import Problem, ProblemVersion
from optimizer.models.problem_upload import ProblemUpload, UploadState
from optimizer.models.provider import Provider, ProviderApi, ProviderKind, Record
from optimizer.models.release import Release, ReleaseState
from optimizer.models.retiming import RetimeRound, RetimeVerdict, Retiming
from optimizer.models.review import Comment, CommentEdit, Review, ReviewVerdict, Side, Thread, ThreadState
from optimizer.models.run import Run
from optimizer.models.run_template import RunTemplate
from optimizer.models.runner import Runner
from optimizer.models.saved_view import SavedView
from optimizer.models.suite import Suite, SuiteEntry
from optimizer.models.target import Target
from optimizer.models.team import Membership, Team, User
from optimizer.models.tool_call import CallTurn, ToolCall
from optimizer.models.webhook import DeliveryState, Webhook, WebhookDelivery, WebhookEvent
from optimizer.models.worker_key import WorkerKey

__all__ = [
    "AheadBatch",
    "ApiToken",
    "AuditAction",
    "AuditEntry",
    "AuthorKind",
    "CallState",
    "CallTurn",
    "Campaign",
    "CampaignCell",
    "CampaignConfiguration",
    "CampaignState",
    "CampaignTiming",
    "Comment",
    "CommentEdit",
    "DeliveryState",
    "EndToEndReport",
    "Evaluation",
    "EvaluationPurpose",
    "EvaluationState",
    "EvaluationStatus",
    "Finding",
    "Follow",
    "Guidance",
    "Hypothesis",
    "HypothesisKind",
    "IdempotencyKey",
    "Invitation",
    "Job",
    "JobLog",
    "JobState",
    "Kernel",
    "KernelParent",
    "LlmCall",
    "Measurement",
    "Membership",
    "Notification",
    "NotificationChoice",
    "NotificationKind",
    "ObjectiveChoice",
    "Problem",
    "ProblemUpload",
    "ProblemVersion",
    "Provider",
    "ProviderApi",
    "ProviderKind",
    "Record",
    "Release",
    "ReleaseState",
    "RetimeRound",
    "RetimeVerdict",
    "Retiming",
    "Review",
    "ReviewVerdict",
    "Run",
    "RunEvent",
    "RunState",
    "RunTemplate",
    "Runner",
    "SavedView",
    "Side",
    "Suite",
    "SuiteEntry",
    "Target",
    "Team",
    "TeamRole",
    "Thread",
    "ThreadState",
    "TokenScope",
    "ToolCall",
    "ToolState",
    "UploadState",
    "User",
    "VerdictChoice",
    "Webhook",
    "WebhookDelivery",
    "WebhookEvent",
    "WorkerKey",
]
