"""Posteriors of the mean score of an arm, for Thompson sampling."""

import enum
import math
import random
import sys
from typing import Protocol

import msgspec


class Posterior(Protocol):
    """What is believed of the mean of the scores in [0, 1] that an arm gives."""

    def told(self, score: float) -> "Posterior":
        """The belief after one more score."""
        ...

    def draw(self, rng: random.Random) -> float:
        """One sample of the mean."""
        ...


class Gaussian(msgspec.Struct, frozen=True, kw_only=True):
    """Normal scores of unknown mean and variance under a normal-inverse-chi-squared prior (Murphy 2023,
    "Probabilistic Machine Learning: Advanced Topics", 3.4.3.3): the mean lies about `m` as sure as `kappa`
    scores, the variance about `tau2` as sure as `nu` scores."""

    m: float = 0.0
    kappa: float = 1.0
    nu: float = 1.0
    tau2: float = 0.1

    def told(self, score: float) -> "Gaussian":
        kappa, nu = self.kappa + 1.0, self.nu + 1.0
        surprise = self.kappa / kappa * (score - self.m) ** 2
        return Gaussian(
            m=(self.kappa * self.m + score) / kappa,
            kappa=kappa,
            nu=nu,
            tau2=(self.nu * self.tau2 + surprise) / nu,
        )

    def draw(self, rng: random.Random) -> float:
        """The variance is nu tau2 over a chi-squared variate of `nu` degrees, the mean normal given it."""
        chi2 = max(rng.gammavariate(self.nu / 2.0, 2.0), sys.float_info.min)
        return rng.normalvariate(self.m, math.sqrt(self.nu * self.tau2 / chi2 / self.kappa))


class Bernoulli(msgspec.Struct, frozen=True, kw_only=True):
    """Scores as fractions of a success under a Beta prior, by default Jeffreys'."""

    a: float = 0.5
    b: float = 0.5

    def told(self, score: float) -> "Bernoulli":
        return Bernoulli(a=self.a + score, b=self.b + 1.0 - score)

    def draw(self, rng: random.Random) -> float:
        return rng.betavariate(self.a, self.b)


class Belief(enum.StrEnum):
    """Which family of posteriors."""

    GAUSSIAN = "gaussian"
    BETA = "beta"

    @property
    def prior(self) -> Posterior:
        """Before any score."""
        return Gaussian() if self is Belief.GAUSSIAN else Bernoulli()
