"""All faults, their healthy twins, and healthy runs with a scary look, by name."""

from __future__ import annotations

from benchmarks.faultlab import faults_data, faults_optimiser, faults_rl, faults_system
from benchmarks.faultlab.fault import Fault, twin

FAULTS: tuple[Fault, ...] = (
    *faults_data.FAULTS,
    *faults_optimiser.FAULTS,
    *faults_system.FAULTS,
    *faults_rl.FAULTS,
)
#: One for each fault.
TWINS = tuple(twin(fault) for fault in FAULTS if not fault.healthy)
BY_NAME = {fault.name: fault for fault in (*FAULTS, *TWINS)}
