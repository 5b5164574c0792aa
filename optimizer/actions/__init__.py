"""Change things on behalf of people and workers: one function per action, with its checks, locks and audit entry."""
