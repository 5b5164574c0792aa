"""Build languages that compile to a shared library with a C signature: C++, CUDA and HIP.

`NativeBackend.build` is the template. A language names its compiler, its flags and what it reads from the product.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from runners.backends.base import Artefact, Backend, BuildRequest, chosen_tunables
from runners.backends.cache import BuildCache
from runners.backends.compiling import Toolbox, compile_source, digest, macro_text, moved_library
from runners.job import BuildReport, KernelResources, Source
from runners.static_features import VERSION
from runners.targets import target
from runners.tunables import DeclaredSpace, parse


class NativeBackend(Backend):
    """Compile a source to a library with a C signature, and read from it what the compiler made of it."""

    kind: ClassVar[str] = "native"
    title: ClassVar[str]
    vendor: ClassVar[str] = ""
    """Vendor of the targets that the language is for, as `Target.vendor`; empty where it does not matter."""
    vendor_title: ClassVar[str] = ""
    source_name: ClassVar[str]
    default_flags: ClassVar[tuple[str, ...]]
    default_standard: ClassVar[str]
    allowed_flags: ClassVar[re.Pattern[str]]

    def refused_flags(self, source: Source, space: DeclaredSpace) -> list[str]:
        """Return a complaint for each flag of the choice or of the text that the allow-list does not know."""
        flags = [*source.flags, *(flag for flags in space.flag_sets for flag in flags)]
        unknown = [flag for flag in flags if not self.allowed_flags.fullmatch(flag)]
        return [f"flag {flag} is not on the list of allowed flags" for flag in unknown]

    def build(self, request: BuildRequest) -> Artefact:
        """Compile the source, or take the result from the cache."""
        if complaint := self._wrong_target(request.target):
            return Artefact(self.kind, None, request.symbol, BuildReport(False, 0.0, False, complaint))
        command = self.command(request)
        entry = BuildCache(self.language.value, self._cache_key(request, command))
        product = request.folder / self.product_name()
        report = entry.fetch(product)
        if report is None:
            report = self.compile(request, command, product)
            entry.keep(product, report)
        return Artefact(self.product_kind(), product if report.ok else None, request.symbol, report)

    def command(self, request: BuildRequest) -> list[str]:
        """Return the compiler's command line without source and product."""
        source = request.source
        space = parse(source.text)
        flags = source.flags or (space.flag_sets[0] if space.flag_sets else self.default_flags)
        standard = [] if any(flag.startswith("-std=") for flag in flags) else [self.default_standard]
        macros = [f"-D{name}={macro_text(value)}" for name, value in sorted(chosen_tunables(source).items())]
        return [self.compiler(request), *standard, *flags, *self.fixed_flags(request), *macros]

    def compile(self, request: BuildRequest, command: list[str], product: Path) -> BuildReport:
        """Compile and link in one step, leaving the library at `product`."""
        tools = self.tools()
        compiled = compile_source(request, command, self.source_name, product.name, tools)
        if compiled.product is None:
            return BuildReport(False, compiled.seconds, False, compiled.log)
        complaint = moved_library(compiled.product, product, request.symbol)
        if complaint is not None:
            return BuildReport(False, compiled.seconds, False, complaint)
        kernels, assembly = self.inspect(request, product, compiled.log)
        return BuildReport(True, compiled.seconds, False, compiled.log, digest(product), kernels, assembly)

    def product_name(self) -> str:
        """Return the file name of what is built."""
        return "kernel.so"

    def product_kind(self) -> str:
        """Return how the product is loaded (see `Artefact.kind`)."""
        return self.kind

    def tools(self) -> Toolbox:
        """Return what the compiler needs besides the source."""
        return Toolbox()

    @abstractmethod
    def compiler(self, request: BuildRequest) -> str:
        """Return the compiler's absolute path. Raises InfraFailure where it is not installed."""

    @abstractmethod
    def fixed_flags(self, request: BuildRequest) -> list[str]:
        """Return the flags that no candidate chooses, such as those for the target's architecture."""

    @abstractmethod
    def fingerprint(self, command: list[str]) -> list[str]:
        """Return what a build depends on besides text, symbol and command, such as the compiler's version."""

    @abstractmethod
    def inspect(
        self, request: BuildRequest, product: Path, log: str
    ) -> tuple[list[KernelResources], dict[str, str]]:
        """Return the resources of each kernel and the assembly by kind, from the product and the compiler's log."""

    def _wrong_target(self, key: str) -> str | None:
        """Return a complaint where the target is not of the language's vendor."""
        if not self.vendor or (wanted := target(key)).vendor == self.vendor:
            return None
        return f"{self.title} kernels are built for {self.vendor_title} GPUs, not for {wanted.title}"

    def _cache_key(self, request: BuildRequest, command: list[str]) -> str:
        parts = [request.source.text, request.symbol, command, VERSION, *self.fingerprint(command)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
