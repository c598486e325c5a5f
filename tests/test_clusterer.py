"""ImageClusterer: scikit-learn's own checks, its promises, and its answers to bad input."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tubal import ImageClusterer


@parametrize_with_checks([ImageClusterer()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
