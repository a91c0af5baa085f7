"""The system calls that a jailed command may not make, as the program that the kernel runs before each of them.

A call that is not allowed is put to the watch of the jail, which counts it by its name and lets it fail.
"""

from __future__ import annotations

import struct

__all__ = ["MACHINES", "names", "program"]

# Each call's number on x86_64 and on aarch64: ways to other namespaces and mounts, to other processes, to memory that
# no process is charged for, and to parts of the kernel that a command has no business with.
DENIED = {
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
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "mq_open": (240, 180),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "acct": (163, 89),
    "quotactl": (179, 60),
}
LOOKED_AT = {"clone": (56, 220), "socket": (41, 198), "mmap": (9, 222)}  # not allowed with some arguments
CLONE3 = (435, 435)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column above, and the kernel's name for it

NEW_NAMESPACES = 0x7E020000  # the flags of clone that make one
FAMILIES = (1, 16)  # of sockets, that lead nowhere: Unix, netlink

_LOAD, _JUMP_EQ, _JUMP_GT, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _ASK, _KILL, _NO_SUCH_CALL = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x00050000 | 38
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # where the call's number, its machine and its arguments are

Line = tuple[int, int, int, int]  # operation, lines to skip if true, lines to skip if false, value


def names(machine: str) -> dict[int, str]:
    """The calls that are put to the watch, by their numbers on this machine."""
    column, _ = MACHINES[machine]
    return {numbers[column]: name for name, numbers in (DENIED | LOOKED_AT).items()}


def program(machine: str, address_space: int) -> bytes:
    """The filter for this machine. A request for more than `address_space` bytes at once is not allowed.

    >>> len(program("x86_64", 1 << 32)) % 8
    0
    """
    column, arch = MACHINES[machine]
    lines: list[Line] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQ, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_GE, 0, 1, 0x40000000),  # the same calls by other numbers
        (_RETURN, 0, 0, _KILL),
        *_when(
            CLONE3[column], [(_RETURN, 0, 0, _NO_SUCH_CALL)]
        ),  # its flags are out of sight; libc then uses clone
    ]
    for numbers in DENIED.values():
        lines += _when(numbers[column], [(_RETURN, 0, 0, _ASK)])
    for name, body in (("clone", _clone()), ("socket", _socket()), ("mmap", _mmap(address_space))):
        lines += _when(LOOKED_AT[name][column], body)
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _when(number: int, body: list[Line]) -> list[Line]:
    """The body, which returns, for the call of this number."""
    return [(_JUMP_EQ, 0, len(body), number), *body]


def _clone() -> list[Line]:
    return [
        (_LOAD, 0, 0, _FIRST),
        (_JUMP_SET, 0, 1, NEW_NAMESPACES),
        (_RETURN, 0, 0, _ASK),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _socket() -> list[Line]:
    known: list[Line] = [(_JUMP_EQ, len(FAMILIES) - i, 0, family) for i, family in enumerate(FAMILIES)]
    return [(_LOAD, 0, 0, _FIRST), *known, (_RETURN, 0, 0, _ASK), (_RETURN, 0, 0, _ALLOW)]


def _mmap(most: int) -> list[Line]:
    high, low = most >> 32, most & 0xFFFFFFFF
    return [
        (_LOAD, 0, 0, _SECOND + 4),
        (_JUMP_GT, 3, 0, high),
        (_JUMP_EQ, 0, 3, high),
        (_LOAD, 0, 0, _SECOND),
        (_JUMP_GT, 0, 1, low),
        (_RETURN, 0, 0, _ASK),
        (_RETURN, 0, 0, _ALLOW),
    ]
