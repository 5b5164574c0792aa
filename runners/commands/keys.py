"""Show our signing keys and pin those of others: `python -m runners keys`."""

from __future__ import annotations

import argparse
import sys

from runners.signing.keyring import KeyFileError, Keyring, Role

ROLES = [role.value for role in Role]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("keys", help="show our signing keys, and pin those of sites and runners to trust")
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add show, trust and forget, here and to `manage.py keys`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("show", help="print our public keys, and those that are trusted")
    trust = actions.add_parser("trust", help="accept jobs of a site, or results of a runner")
    trust.add_argument("role", choices=ROLES)
    trust.add_argument("key", help="64 hexadecimal digits, or a file with them")
    trust.add_argument("--name", default="", help="a name for it, by default its fingerprint")
    forget = actions.add_parser("forget", help="accept that key no longer")
    forget.add_argument("role", choices=ROLES)
    forget.add_argument("name")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Return 2 for a key or name that is none."""
    try:
        print(answer(Keyring(), arguments.action or "show", vars(arguments)))
    except KeyFileError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def answer(keyring: Keyring, action: str, options: dict[str, str]) -> str:
    """Carry out an action and return what to print. Raises KeyFileError."""
    if action == "show":
        return "\n".join(_lines(keyring))
    role = Role(options["role"])
    if action == "trust":
        return f"{role} {keyring.trust(role, options['key'], options['name'])} is trusted"
    if not keyring.forget(role, options["name"]):
        raise KeyFileError(f"there is no {role} {options['name']}")
    return f"{role} {options['name']} is no longer trusted"


def _lines(keyring: Keyring) -> list[str]:
    lines = [f"our {role:<6}         {keyring.public(role)}" for role in Role]
    for role in Role:
        lines += [f"trusted {role:<6} {public} {name}" for name, public in keyring.trusted(role).items()]
    return lines
