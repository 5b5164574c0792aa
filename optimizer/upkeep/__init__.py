"""Do what no request waits for: revive lost work, deliver webhooks, mail digests, delete old data."""
