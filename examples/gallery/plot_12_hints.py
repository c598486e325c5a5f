"""
A few answers
=============

Clusters stop where pixels stop. Here a person names twenty of 1,797 digits, in rounds of ten; the clusterer chooses
which ones, and all other digits follow. Answers come from the labels here, as a person would give them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from tubal import ImageClusterer
from tubal.metrics import clustering_accuracy

digits = load_digits()
images = digits.images / 16.0
clusterer = ImageClusterer(n_clusters=10, random_state=0).fit(images)
print(f"no answers: accuracy {clustering_accuracy(digits.target, clusterer.labels_):.1%}")

# %%
# ``questions`` returns the images whose names would tell most, the first of them first. ``refine`` takes the names.
# Every named image keeps its name, and similar images follow.
rounds = []
for _ in range(2):
    asked = clusterer.questions(10)
    clusterer.refine({int(i): str(digits.target[i]) for i in asked})
    accuracy = clustering_accuracy(digits.target, clusterer.labels_)
    rounds.append(asked)
    print(f"{len(clusterer.hints_.names)} answers: accuracy {accuracy:.1%}, still doubtful: {clusterer.n_doubtful_}")

# %%
# What was asked. Uniform clusters get their name by one answer. Others are asked about in several places, where two
# shapes of one digit, or two digits of one shape, may have been taken for each other.
figure, rows = plt.subplots(2, 10, figsize=(8, 2), layout="constrained")
for number, (row, asked) in enumerate(zip(rows, rounds, strict=True), start=1):
    for axis, i in zip(row, asked, strict=True):
        axis.imshow(images[i], cmap="gray_r")
        axis.set_title(str(digits.target[i]), fontsize=8)
        axis.set_axis_off()
    row[0].text(-0.6, 0.5, f"round {number}", rotation=90, va="center", ha="right", transform=row[0].transAxes)

# %%
# Answers are facts: they hold whatever else is said, and contradictions are refused before anything changes.
first, second = (int(i) for i in rounds[0][:2])
try:
    clusterer.refine(same=[(first, second)])
except ValueError as error:
    print(error)

# %%
# An answer can be taken back.
clusterer.forget([first])
names = np.array(clusterer.names_, dtype=object)
print("names of the clusters:", ", ".join(map(str, names)))
