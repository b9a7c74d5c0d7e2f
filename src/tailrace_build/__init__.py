"""Kernels compiled into libraries, by Numba and Zig: for wheels and for a checkout of the repository.

    python -m tailrace_build DIRECTORY [TARGET ...]

No distribution has this package, and nothing that runs imports it.

    compiler    kernels -> one module of LLVM
    intrinsics  the code of what kernels are made of: loads, stores, calls
    linker      the module -> a library for each target
"""

import os

# Code for the machine that compiles would not do for another one, nor would what is optimised for it.
os.environ |= {
    "NUMBA_CPU_FEATURES": "",
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_DISABLE_JIT": "0",
    "NUMBA_OPT": "0",
}
