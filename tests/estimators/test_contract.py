"""scikit-learn's own checks of the four estimators; none is declared to fail, and no tag avoids a check."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tubal import GTSC, GraphSC, SparseCoding, TubSC

ALL = [TubSC, GTSC, SparseCoding, GraphSC]


@parametrize_with_checks([estimator() for estimator in ALL])
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ALL)
def test_no_tag_makes_scikit_learn_skip_checks(estimator):
    tags = estimator().__sklearn_tags__()
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert tags.input_tags.two_d_array
    assert tags.input_tags.three_d_array
