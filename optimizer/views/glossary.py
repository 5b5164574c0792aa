"""The field's terms as this product uses them, each with a source to read on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A term, what it means here, and where that comes from."""

    slug: str
    name: str
    meaning: str
    source: str


TERMS = (
    Term("baseline", "Baseline", "The problem's reference as torch runs it on the same machine in the same minutes. "
         "Every speedup names its baseline; torch_eager is the default.", "KernelBench, Ouyang et al. 2025"),
    Term("speedup", "Speedup and its interval", "Baseline time divided by kernel time, as the geometric mean over the "
         "timed cases. Both are timed in interleaved pairs (ABBA) in fresh processes; the interval is a 95 % bootstrap "
         "interval of the logarithm of the ratio.", "Efron and Tibshirani, An Introduction to the Bootstrap, 1993"),
    Term("verdict", "Verdict: faster, same, slower", "Faster or slower is said only when the interval excludes 1 by "
         "more than the A/A band: the ratio that two timings of one and the same kernel show on that machine.",
         "Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013"),
    Term("suspect", "Suspect", "The kernel passed, but something about its timing cannot be: clocks that disagree, or "
         "a time below the roofline. A suspect kernel is never ranked.", "this product's own rule"),
    Term("roofline", "Roofline", "The least time that physics allows: the larger of bytes divided by bandwidth and "
         "FLOPs divided by peak. A kernel near the roofline of memory gains nothing from faster arithmetic.",
         "Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009"),
    Term("occupancy", "Occupancy", "How many wavefronts a SIMD unit can hold at once, limited by registers and LDS. "
         "More of them hide latency better; few with more registers each may still be faster.",
         "AMD Instinct MI300 ISA reference guide; Volkov, Better Performance at Lower Occupancy, GTC 2010"),
    Term("wavefront", "Wavefront", "The threads that execute one instruction together: 64 on CDNA (MI300), 32 on "
         "NVIDIA, where it is called a warp.", "AMD CDNA 3 ISA reference guide"),
    Term("lds", "LDS", "Local data share: on-chip memory shared by a workgroup, 64 KiB a compute unit on MI300. NVIDIA "
         "calls it shared memory.", "AMD CDNA 3 ISA reference guide"),
    Term("vgpr", "VGPR, AGPR, SGPR", "Vector, accumulation and scalar registers. What does not fit is spilled to "
         "scratch memory, which costs far more than a register.", "AMD CDNA 3 ISA reference guide"),
    Term("fast-p", "fast_p", "Share of problems for which a kernel is correct and more than p times as fast as the "
         "baseline; fast_1 counts what beats it at all.", "KernelBench, Ouyang et al. 2025"),
    Term("tunable", "Tunable", "A value the source declares in a comment with its alternatives, such as a tile size. "
         "The strategy tune searches the combinations that satisfy the constraints; it needs no language model.",
         "van Werkhoven, Kernel Tuner, FGCS 90, 2019"),
    Term("hypothesis", "Hypothesis", "What an author expects of a change, written down before it is tried: a predicted "
         "range of gain, compared later with what was measured.", "GPU Kernel Scientist, Andrews and Witteveen 2025"),
    Term("sandbox", "Sandbox level", "How a kernel was held while it was built and run. Stored with each result: "
         "bubblewrap is stronger than landlock; none means it could have done anything the account may.",
         "this product's own rule"),
)  # fmt: skip
