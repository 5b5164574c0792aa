"""Store which key signs what the workers of a token send."""

from __future__ import annotations

from django.db import models


class WorkerKey(models.Model):
    """Store the public key (Ed25519, hexadecimal) of the workers that use a token, named by the token's SHA-256.

    The first worker that uses the token registers its key. Tokens themselves are in a file
    (`optimizer.secrets.worker_tokens`), which the site may be unable to write.
    """

    token_digest = models.CharField(max_length=64, unique=True)
    public_key = models.CharField(max_length=64)
    registered_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.public_key
