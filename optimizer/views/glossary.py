"""Define the field's terms as this product uses them, each with a source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """Hold a term, its meaning here, and its source."""

    slug: str
    name: str
    meaning: str
    source: str


TERMS = (
    Term("baseline", "Baseline", "The problem's reference as torch runs it on the same machine in the same minutes. "
         "Every speedup names its baseline; torch_eager is the default.", "KernelBench, Ouyang et al. 2025"),
    Term("speedup", "Speedup and its interval", "Baseline time divided by kernel time, as the geometric mean over the "
         "timed cases. Both are timed in interleaved pairs (ABBA) in fresh processes; the interval is a 95 % bootstrap "
         "interval of the logarithm of the ratio, widened by Student's t for the few sessions that it comes from.",
         "Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013; Hesterberg, What Teachers Should "
         "Know About the Bootstrap, 2015"),
    Term("device-time", "Device time and call time", "On a GPU a call is timed twice. Device time leaves the host "
         "out: the device is held until the whole call is enqueued, then released. Call time is what a caller of eager "
         "code sees in a steady loop, host included. Verdicts go by device time unless the run optimises call time, or "
         "the host cannot be left out because the call waits for the device or enqueues too many launches.",
         "NVBench, NVIDIA; torch.utils.benchmark"),
    Term("verdict", "Verdict: faster, same, slower", "A kernel is called faster or slower only if the interval "
         "excludes 1 by more than the noise floor: the ratio that two timings of the same kernel show on that "
         "machine.",
         "Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013"),
    Term("leader", "Leader, settling", "Kernels of a run are ranked by the lower end of their interval against the "
         "baseline, and a kernel that was proven slower than another one in turns cannot lead before it. Before a run "
         "ends, its leaders are measured again in cold processes, against the baseline and against each other.",
         "this product's own rule"),
    Term("suspect", "Suspect", "The kernel passed, but its timing is implausible: clocks disagree, or a time is below "
         "the roofline. A suspect kernel is never ranked.", "this product's own rule"),
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
    Term("mfma", "MFMA", "Matrix fused multiply-add: the instructions that use CDNA's matrix cores; one wavefront "
         "multiplies small tiles, such as 32×32×8, held in VGPRs and AGPRs. NVIDIA's counterpart is MMA on tensor "
         "cores. A matrix kernel without them cannot come near the roofline.", "AMD CDNA 3 ISA reference guide"),
    Term("aa-band", "Noise floor (A/A band)", "How far the ratio of two timings of the same kernel strays from 1 on "
         "that machine, although nothing was changed. A smaller difference shows nothing.",
         "Kohavi, Tang and Xu, Trustworthy Online Controlled Experiments, 2020 (A/A tests)"),
    Term("abba", "ABBA", "The order in which two kernels are timed: first one, second, second, first, and again. A "
         "machine that warms up or drifts slowly then slows both alike, and the ratio stays true.",
         "Box, Hunter and Hunter, Statistics for Experimenters, 2005 (blocking)"),
    Term("calibration", "Calibration", "How often predictions hold: the share of a model's predicted ranges of gain "
         "that contained the measured gain. A well-calibrated model can be trusted to choose.",
         "Gneiting and Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, JASA 102, 2007"),
    Term("anchor", "Anchor, grounded instruction", "In the strategy stark the planner marks the block of the source "
         "that is to change and writes its advice inside; the coder changes only that block.",
         "STARK, arXiv 2510.16996"),
    Term("context-window", "Context window of an agent", "Which other kernels of the tree an agent is shown beside its "
         "own: planner, coder and debugger see different ones, siblings, children or the leaderboard; never more "
         "than five.", "STARK, arXiv 2510.16996"),
    Term("root-throttle", "Root throttle, dead branch", "After five children the root is not chosen again, and a node "
         "whose more than three children all failed is given up, so that the search moves on.",
         "STARK, arXiv 2510.16996"),
    Term("epsilon", "ε-greedy choice", "With probability ε the search extends a leaf at random, otherwise the best "
         "node that may be chosen.", "STARK, arXiv 2510.16996"),
    Term("success-fast1", "Success, Fast1, Speed", "Share of problems with a correct kernel; share at least as fast as "
         "the baseline; mean of baseline time over kernel time.", "STARK, arXiv 2510.16996; KernelBench"),
    Term("avenue", "Avenue, experiment", "In the strategy scientist the designer first names ten avenues, a sentence "
         "each, then five experiments with a rubric, a range of gain and a mark for how new they are; three are "
         "carried out.", "GPU Kernel Scientist, arXiv 2506.20807"),
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
