"""Numbers of the system calls the filter names: x86-64 (its own table), aarch64 (the generic table).

From Linux's `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`; a test compares
them with the installed headers. Numbers from 424 on are the same everywhere. None: the call is not there.
"""

from __future__ import annotations

Group = dict[str, tuple[int, int | None]]

# Looking into other processes, or into the kernel.
TRACING: Group = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "lookup_dcookie": (212, 18),
}

# The machine's own settings.
KERNEL: Group = {
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "personality": (135, 92),
}

# New namespaces, mounts, and file handles that pass by the paths.
NAMESPACES: Group = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
}

KEYRINGS: Group = {"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)}

# io_uring does file and network calls that no filter sees.
RINGS: Group = {"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)}

# System V and POSIX objects, which outlive a process and escape its memory limit.
MESSAGES: Group = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}

# Memory outside every per-process limit. Accelerator drivers need it.
MEMORY_FILES: Group = {"memfd_create": (319, 279), "memfd_secret": (447, 447)}

SOCKETS: Group = {
    "socket": (41, 198),
    "bind": (49, 200),
    "connect": (42, 203),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
}

# What cuInit of NVIDIA's driver 580 does to start (seen on an H100).
CUDA_SOCKETS = ("socket", "bind", "listen")

# Refused to every process; MEMORY_FILES only to those without an accelerator.
NEVER = (TRACING, KERNEL, NAMESPACES, KEYRINGS, RINGS, MESSAGES, SOCKETS)

CLONE = (56, 220)
CLONE3 = (435, 435)
SOCKETPAIR = (53, 199)
IOCTL = (16, 29)
SETSOCKOPT = (54, 208)
