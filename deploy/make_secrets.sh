#!/bin/sh
# Make the secrets of deploy/docker-compose.yml, each in a file of its own. Those that exist already are kept.
# GPU_TARGET names the queue of a GPU worker that is not the default, as in site.env.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
word() { openssl rand -base64 48 | tr -d '/+=\n'; }
keep() { [ -s "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; }
hexadecimal() { tail -c 32 | od -An -v -tx1 | tr -d ' \n'; }
keep postgres_password "$(word)"
keep redis_password "$(word)"
keep secret_key "$(word)"
keep provider_key_secrets "$(word)"
keep database_url "postgresql://kernelsci:$(cat secrets/postgres_password)@postgres/kernelsci"
printf '%s' "unix://:$(cat secrets/redis_password)@/run/redis/valkey.sock?db=0" > secrets/redis_url
# The key that signs jobs (Ed25519), and its public half for those who carry them out. Both end their DER encoding.
if ! [ -s secrets/site_key ]; then
  openssl genpkey -algorithm ed25519 -out secrets/site_key.pem
  openssl pkey -in secrets/site_key.pem -pubout -outform DER | hexadecimal > secrets/site_key.pub
  openssl pkey -in secrets/site_key.pem -outform DER | hexadecimal > secrets/site_key
  rm secrets/site_key.pem
fi
# A worker's token is for one queue. The site gets only digests.
: > secrets/worker_tokens
token() {
  keep "token_$1" "kw_$(word)"
  digest=$(openssl dgst -sha256 -r < "secrets/token_$1" | cut -d ' ' -f 1)
  echo "$2 $digest $1" >> secrets/worker_tokens
}
token build build
token bench_cpu bench.cpu
token bench_rocm "bench.${GPU_TARGET:-gfx942}"
token bench_cuda "bench.${GPU_TARGET:-sm_90}"
# Compose mounts the files as they are, and the containers' users are not ours. The folder keeps everybody else out.
chmod 0644 secrets/*
