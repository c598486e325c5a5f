"""The walk through the code: how many files a reader meets, and in which order."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "walk.py"


@pytest.fixture(scope="module")
def tool():
    specification = importlib.util.spec_from_file_location("walk", TOOL)
    module = importlib.util.module_from_spec(specification)
    sys.modules["walk"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def fit_calls(tool):
    return tool.walk("fit")


def test_fit_enters_at_most_16_files(tool, fit_calls):
    assert len(tool.files_entered(fit_calls)) <= 16


def test_cluster_command_enters_at_most_45_files(tool):
    assert len(tool.files_entered(tool.walk("cluster"))) <= 45


def test_fit_enters_five_files_above_problems_and_solvers(tool, fit_calls):
    above_problems = [file for file in tool.files_entered(fit_calls) if file.startswith(("estimators/", "learning/"))]
    assert len(above_problems) == 5


def test_estimator_files_are_entered_once_during_a_fit(tool, fit_calls):
    route = tool.route(fit_calls, "estimators")
    assert len(route) == len(set(route)), route


def test_description_names_files_functions_and_counts(tool, fit_calls):
    text = tool.describe(fit_calls)
    assert "1 × ImageCoder.fit" in text
    assert text.index("estimators/image_coder.py") < text.index("learning/alternation.py")
