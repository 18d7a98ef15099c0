"""One thread for each process that runs tests: several of them share the cores already."""

import os

# Read when torch and NumPy are loaded, which is after this file. Threads of OpenMP that wait for
# each other on cores that are taken make small models slower by a multiple.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
