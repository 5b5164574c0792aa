#!/bin/sh
# Make the secrets of deploy/docker-compose.yml, each in a file of its own. Those that exist already are kept.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
word() { openssl rand -base64 48 | tr -d '/+=\n'; }
keep() { [ -s "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; }
keep postgres_password "$(word)"
keep redis_password "$(word)"
keep secret_key "$(word)"
keep provider_key_secrets "$(word)"
keep database_url "postgresql://kernelsci:$(cat secrets/postgres_password)@postgres/kernelsci"
keep redis_url "redis://:$(cat secrets/redis_password)@redis:6379/0"
# Compose mounts the files as they are, and the containers' users are not ours. The folder keeps everybody else out.
chmod 0644 secrets/*
