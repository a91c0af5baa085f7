"""The system calls that a jailed command may make, as a program for the kernel, which libseccomp writes.

Any other is put to the watch outside the jail, which records its name and lets it fail.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

__all__ = ["call_name", "call_number", "program"]

ALLOWED = """
read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 open openat openat2 creat close close_range
lseek dup dup2 dup3 stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 flock fsync
fdatasync sync syncfs sync_file_range truncate ftruncate fadvise64 readahead getdents getdents64 getcwd chdir fchdir
rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes futimesat utimensat mknod mknodat
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr copy_file_range sendfile splice ioctl munmap mremap
mprotect madvise brk msync mincore membarrier fork vfork execve execveat exit wait4 waitid getpid getppid gettid
getpgid getpgrp getsid setpgid setsid set_tid_address set_robust_list get_robust_list rseq arch_prctl prctl futex
futex_waitv sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler sched_get_priority_max
sched_get_priority_min getpriority setpriority getrlimit setrlimit getrusage times rt_sigaction rt_sigprocmask
rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause alarm setitimer getitimer restart_syscall
pidfd_open getuid geteuid getgid getegid getresuid getresgid getgroups capget clock_gettime clock_getres
clock_nanosleep nanosleep gettimeofday time timer_create timer_settime timer_gettime timer_getoverrun timer_delete
timerfd_create timerfd_settime timerfd_gettime poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl
epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4 pipe pipe2 bind connect listen accept
accept4 getsockname getpeername sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown setsockopt getsockopt
uname sysinfo getrandom getcpu
""".split()
LE, EQ, MASKED, NE = 3, 4, 7, 1  # how libseccomp compares an argument; MASKED with a mask and a value
Test = tuple[int, int, int, int]  # which argument, how, with what
SOME: dict[str, list[list[Test]]] = {  # allowed where all tests of one line hold
    "clone": [[(0, MASKED, 0x7E020000, 0)]],  # no new namespaces
    "socket": [[(0, EQ, 1, 0)], [(0, EQ, 16, 0), (2, EQ, 0, 0)]],  # Unix, and the netlink of routes
    "socketpair": [[(0, EQ, 1, 0)]],
    "fcntl": [[(1, NE, 1031, 0)]],  # no larger pipes
    "prlimit64": [[(0, EQ, 0, 0)]],  # of itself
    "personality": [[(0, EQ, 0xFFFFFFFF, 0)]],  # which is only to ask
    **{name: [[(0, NE, 1, 0)]] for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")},
}
for kind, most in {"uid": 1, "gid": 1, "reuid": 2, "regid": 2, "resuid": 3, "resgid": 3}.items():
    SOME[f"set{kind}"] = [[(i, NE, 0, 0) for i in range(most)]]  # not to root
ASK, ALLOW, ERROR = 0x7FC00000, 0x7FFF0000, 0x00050000
ABSENT = {"clone3": 38, "pkey_alloc": 38, "setxattr": 95, "fsetxattr": 95, "lsetxattr": 95}  # programs do without


class _Compare(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


@cache
def _library() -> ctypes.CDLL:
    """Raises OSError where it is not installed."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
    return library


def call_number(name: str) -> int:
    """The number of a system call on this machine; negative if it has none."""
    return int(_library().seccomp_syscall_resolve_name(name.encode()))


def call_name(machine: int, number: int) -> str:
    """The name of a system call by its number, on the machine that the kernel calls so."""
    name = _library().seccomp_syscall_resolve_num_arch(ctypes.c_uint32(machine), number)
    return ctypes.string_at(name).decode() if name else f"call {number} of another machine"


@cache
def program(most: int, disk: int) -> bytes:
    """The filter. Memory is mapped by at most so many bytes at once if it can be written to, and shared only as a
    file; a file is given at most `disk` bytes at once."""
    limits = ((1, LE, most, 0), (2, MASKED, 2, 0))  # by its size, or not to be written to
    mmap = [[(3, MASKED, 0x21, kind), limit] for kind in (0x00, 0x01, 0x20) for limit in limits]
    every: dict[str, list[list[Test]]] = {name: [[]] for name in ALLOWED}
    every |= SOME | {"mmap": mmap, "fallocate": [[(3, LE, disk, 0)]]}
    rules = [(ALLOW, name, line) for name, tests in every.items() for line in tests]
    library, file = _library(), os.memfd_create("filter")
    context = ctypes.c_void_p(library.seccomp_init(ASK))
    try:
        failed = library.seccomp_attr_set(context, 2, ASK)  # calls by another machine's numbers
        for action, name, line in rules + [(ERROR | error, name, []) for name, error in ABSENT.items()]:
            if (number := call_number(name)) >= 0:
                tests = (_Compare * len(line))(*(_Compare(*test) for test in line))
                failed |= library.seccomp_rule_add_array(context, action, number, len(line), tests)
        if failed or library.seccomp_export_bpf(context, file):
            raise OSError("libseccomp writes no such filter")
        return os.pread(file, 1 << 16, 0)
    finally:
        os.close(file)
        library.seccomp_release(context)
