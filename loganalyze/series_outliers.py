"""How surprising a point is beside its neighbours: lone outliers against noise with a memory.

In noise that remembers (AR(1)), a shock is followed by its own echo: after eight deviations the
next point stands at eight times the correlation. A bad batch has no echo: it adds to one point
(Fox 1972: additive against innovative outliers). The test is the logarithm of the likelihood ratio
of the two under Student's t noise, told as the deviation of an independent point as unlikely.
"""

from __future__ import annotations

import numpy as np

from loganalyze.running import t_upper_quartile
from loganalyze.series import MAD_TO_SIGMA, Floats, lag_correlation

#: Points from which on a correlation is believed: in fewer, what the loss still learns passes for
#: memory of its noise, and a swelling spike for an echo.
LEAST = 4000
STEP_POWER = 6.0  # of the noise around a step, where it was not estimated
LEAST_MEMORY, MOST_MEMORY = 0.05, 0.7


def memory_of(z: Floats) -> float:
    """Correlation of neighbours in standardised noise; 0.0 where it is weak or little is known."""
    if len(z) < LEAST:
        return 0.0
    memory = lag_correlation(z) - 1.0 / np.sqrt(len(z))
    return float(np.clip(memory, 0.0, MOST_MEMORY)) if memory > LEAST_MEMORY else 0.0


def surprise(z: Floats, memory: float, power: float) -> Floats:
    """Deviation of an independent point as unlikely as each point is beside its neighbours.

    z: standardised points (robust deviations); memory: correlation of neighbours; power: degrees
    of freedom of the noise. 0.0 where a point is not above what its neighbour foretells.
    """
    if not len(z):
        return z.copy()
    scale = float(np.sqrt(1.0 - memory**2) / (MAD_TO_SIGMA * t_upper_quartile(power)))
    new = np.append(z[:1], z[1:] - memory * z[:-1]) / scale
    after = np.append(new[1:], 0.0)
    lone = np.append(_gain(new[:-1], after[:-1], memory, power), _gain(new[-1:], 0.0, 0.0, power))
    alike = np.sqrt(power * np.expm1(2.0 * np.maximum(lone, 0.0) / (power + 1.0)))
    return np.where(new > 0, scale * alike, 0.0)


def _gain(new: Floats, after: Floats | float, memory: float, power: float) -> Floats:
    """Log likelihood ratio of a point raised by h, of which the next shock takes the echo back.

    h: by least squares.
    """
    h = np.maximum((new - memory * after) / (1.0 + memory**2), 0.0)
    raised = _log_density(new - h, power) + _log_density(after + memory * h, power)
    return np.asarray(raised - _log_density(new, power) - _log_density(after, power))


def step_gain(z: Floats, height: float, power: float = STEP_POWER) -> Floats:
    """Log likelihood ratio of each point raised by `height` against not raised (Student's t).

    z and height in robust deviations. The first point of a step is where the sum from it on is
    largest; heavy tails keep one wild point from moving it.
    """
    scale = 1.0 / (MAD_TO_SIGMA * t_upper_quartile(power))
    return _log_density((z - height) / scale, power) - _log_density(z / scale, power)


def _log_density(x: Floats | float, power: float) -> Floats:
    return np.asarray(-0.5 * (power + 1.0) * np.log1p(np.square(x) / power))
