"""Sign what leaves this machine and check what reaches it: Ed25519 (RFC 8032), keys in files, envelopes."""
