"""What all tests share. It runs before any test module is imported, and so before torch is."""

import os

# One thread a worker: pytest-xdist is the parallelism, and sums over threads may round differently from run to run.
# Set, not defaulted, and in the environment: subprocesses and DataLoader workers take it over.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

# A launcher's variables would give every Topology.detect() in the tests the rank of the job that the tests run in.
for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)

import hypothesis  # noqa: E402

# derandomize: the same examples on every run, so that CI repeats exactly; they change with the test, not with the day.
# To search further: DETDATA_EXAMPLES=2000, and DETDATA_PROFILE=search for new examples each time.
_EXAMPLES = int(os.environ.get("DETDATA_EXAMPLES", "50"))
_COMMON = {
    "max_examples": _EXAMPLES,
    "deadline": None,  # a shared machine is slow at times; timings are the benchmarks' business
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    "print_blob": True,
}
hypothesis.settings.register_profile("ci", derandomize=True, database=None, **_COMMON)
hypothesis.settings.register_profile("search", **_COMMON)
hypothesis.settings.load_profile(os.environ.get("DETDATA_PROFILE", "ci"))
