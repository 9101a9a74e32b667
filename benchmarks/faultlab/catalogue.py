"""All faults and healthy runs, by name."""

from __future__ import annotations

from benchmarks.faultlab import faults_data, faults_optimiser, faults_rl, faults_system
from benchmarks.faultlab.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *faults_data.FAULTS,
    *faults_optimiser.FAULTS,
    *faults_system.FAULTS,
    *faults_rl.FAULTS,
)
BY_NAME = {fault.name: fault for fault in FAULTS}
