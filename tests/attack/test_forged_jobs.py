"""Attack the spool as somebody who shares the directory: a forged job is code execution for whoever works it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners import wire
from runners.dispatch.spool import Slip, Spool, SpoolError
from runners.job import JobResult, JobSpec, Language, ProblemBundle, Source, Status
from runners.job_source import RunnerCard
from runners.signing import ed25519, envelope
from runners.signing.envelope import EnvelopeError
from runners.signing.keyring import KeyFileError, Keyring, Role
from tests.runners.command_line import command

SLIP = Slip(7, 2)
JOB = JobSpec("evaluation-7", ProblemBundle("p", "native", "problem.toml", {}), "cpu", Source(Language.CPP, ""))
RESULT = JobResult("evaluation-7", Status.CORRECT)
# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a directory that is not private: its group may write to it."""
    folder = tmp_path / "spool"
    Spool(folder, Keyring(tmp_path / "owner"))
    for place in (folder, *folder.iterdir()):
        place.chmod(0o775)
    return folder


def ends(shared: Path) -> tuple[Spool, Spool]:
    """Return the spool as a site and as a runner see it, each with keys of its own."""
    return Spool(shared, Keyring(shared.parent / "site")), Spool(shared, Keyring(shared.parent / "runner"))


def test_job_without_a_signature_is_refused(shared: Path) -> None:
    _, runner = ends(shared)
    (shared / "jobs" / SLIP.name).write_text(wire.dumps(JOB))
    assert runner.take() is None
    assert list(runner.refused()) == [(SLIP, "is not signed")]


def test_job_of_a_stranger_is_left_alone_and_worked_once_the_key_is_pinned(shared: Path) -> None:
    """Work the same file once its key is trusted, as the control."""
    site, runner = ends(shared)
    site.announce(Role.SITE)
    site.offer(SLIP, JOB)
    assert runner.take() is None
    assert runner.strangers == {site.keyring.public(Role.SITE): Role.SITE}
    runner.keyring.trust(Role.SITE, site.keyring.public(Role.SITE))
    assert runner.take() == (SLIP, JOB)


def test_result_of_a_stranger_counts_only_once_the_key_is_pinned(shared: Path) -> None:
    site, runner = ends(shared)
    runner.announce(Role.RUNNER)
    runner.deliver(SLIP, RESULT)
    runner.introduce(RunnerCard("w", "cpu", ()))
    assert (list(site.results()), list(site.cards())) == ([], [])
    site.keyring.trust(Role.RUNNER, runner.keyring.public(Role.RUNNER), "gpu-box")
    assert list(site.results()) == [(SLIP, RESULT)] and len(list(site.cards())) == 1
    assert site.keyring.forget(Role.RUNNER, "gpu-box")
    assert list(site.results()) == []


def test_key_that_is_trusted_as_a_runners_signs_no_job(shared: Path) -> None:
    site, runner = ends(shared)
    secret = runner.keyring.secret(Role.RUNNER)
    site.keyring.trust(Role.RUNNER, runner.keyring.public(Role.RUNNER))
    forged = envelope.sealed(secret, f"jobs/{SLIP.name}", wire.dumps(JOB).encode())
    (shared / "jobs" / SLIP.name).write_bytes(forged)
    assert site.take() is None


@pytest.mark.parametrize("change", ["a byte of the job", "another name", "another folder", "another key's name"])
def test_signature_holds_for_one_content_name_and_kind(shared: Path, change: str) -> None:
    site, runner = ends(shared)
    runner.keyring.trust(Role.SITE, site.keyring.public(Role.SITE))
    site.offer(SLIP, JOB)
    path = shared / "jobs" / SLIP.name
    data = path.read_bytes()
    if change == "a byte of the job":
        path.write_bytes(data.replace(b'"cpu"', b'"CPU"'))
    elif change == "another name":
        path.rename(shared / "jobs" / "8.1.json")
    elif change == "another folder":
        (shared / "results" / SLIP.name).write_bytes(data)
        path.unlink()
        assert list(site.results()) == []
    else:
        other = runner.keyring.public(Role.SITE).encode()
        path.write_bytes(data.replace(site.keyring.public(Role.SITE).encode(), other))
    assert runner.take() is None
    if change != "another folder":
        assert "signature is wrong" in next(iter(runner.refused()))[1]


def test_announced_key_is_trusted_where_nobody_else_can_write(tmp_path: Path) -> None:
    """Use two state folders of one user, as on two machines: no key has to be pinned."""
    site, runner = ends(tmp_path / "spool")
    site.announce(Role.SITE)
    site.offer(SLIP, JOB)
    assert site.is_private and runner.take() == (SLIP, JOB)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("fault", ["everybody may write", "another owner"])
@pytest.mark.parametrize("folder", ["jobs", "results", "keys"])
def test_folder_of_others_makes_no_spool(shared: Path, fault: str, folder: str) -> None:
    if fault == "another owner":
        os.chown(shared / folder, 65534, 65534)
    else:
        (shared / folder).chmod(0o777)
    with pytest.raises(SpoolError, match=r"belongs to user 65534|everybody can write"):
        Spool(shared)


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_arithmetic_agrees_with_the_standards_vectors(
    secret: str, public: str, message: str, signature: str
) -> None:
    key, text = bytes.fromhex(secret), bytes.fromhex(message)
    assert ed25519.plain_public_of(key).hex() == public
    assert ed25519.plain_sign(key, text).hex() == signature
    assert ed25519.plain_is_signed(bytes.fromhex(public), bytes.fromhex(signature), text)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200), st.integers(0, 511))
@settings(max_examples=20)
def test_arithmetic_agrees_with_the_library_and_no_flipped_bit_passes(
    secret: bytes, message: bytes, bit: int
) -> None:
    public, signature = ed25519.public_of(secret), ed25519.sign(secret, message)
    assert (ed25519.plain_public_of(secret), ed25519.plain_sign(secret, message)) == (public, signature)
    assert ed25519.plain_is_signed(public, signature, message)
    flipped = (int.from_bytes(signature, "big") ^ (1 << bit)).to_bytes(64, "big")
    assert not ed25519.plain_is_signed(public, flipped, message)
    assert not ed25519.plain_is_signed(public, signature, message + b"x")


@given(st.binary(max_size=300))
def test_what_is_no_envelope_is_refused_without_another_error(data: bytes) -> None:
    with pytest.raises(EnvelopeError):
        envelope.opened(data, "jobs/1.1.json")


def test_keys_are_shown_pinned_and_forgotten_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path / "state"))
    keys = partial(command, "keys")
    other = Keyring(tmp_path / "other").public(Role.SITE)
    assert keys("trust", "site", other, "--name", "lab").returncode == 0
    assert other in keys().stdout and "lab" in keys().stdout
    assert keys("forget", "site", "lab").returncode == 0 and other not in keys().stdout
    assert keys("trust", "site", "no key").returncode == 2
    assert (tmp_path / "state" / "keys" / "site.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "zz", "00" * 31, "00" * 33, "../../etc/passwd"])
def test_text_that_is_no_key_is_not_pinned(tmp_path: Path, text: str) -> None:
    with pytest.raises(KeyFileError):
        Keyring(tmp_path).trust(Role.SITE, text)
    with pytest.raises(KeyFileError):
        Keyring(tmp_path).trust(Role.SITE, "00" * 32, "../escape")
