"""
Handing clusters over to FiftyOne and Label Studio
==================================================

Clusters are suggestions. Tools in which people look at images and label them read small JSON files. Here we write these
files and read the decisions back; neither tool needs to be installed.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from tubal import ImageClusterer

images = load_digits().images[:200] / 16.0
clusterer = ImageClusterer(n_clusters=10, random_state=0).fit(images)

folder = Path(tempfile.mkdtemp()) / "handed-over"
(folder / "data").mkdir(parents=True)
for i, image in enumerate(images):
    Image.fromarray(np.uint8(255 * (1 - image))).save(folder / "data" / f"{i:04d}.png")

# %%
# FiftyOne
# --------
# An *image classification data set*: the pictures in ``data/``, and ``labels.json`` with the classes and, for each
# picture, the number of its class. FiftyOne matches pictures by their names without the suffix. It is imported with
# ``fiftyone.Dataset.from_dir(folder, dataset_type=fiftyone.types.FiftyOneImageClassificationDataset)``.
classes = [f"cluster {k}" for k in range(clusterer.n_clusters_)]
labels = {
    f"{i:04d}": {"label": int(label), "confidence": round(float(sure), 3)}
    for i, (label, sure) in enumerate(zip(clusterer.labels_, clusterer.confidence_, strict=True))
}
(folder / "labels.json").write_text(json.dumps({"classes": classes, "labels": labels}))
print(json.dumps(labels["0000"]))

# %%
# Label Studio
# ------------
# A list of tasks, each with a prediction that a person accepts or corrects. Doubtful pictures come first, because there
# a person helps most. The labelling interface is
#
# .. code-block:: xml
#
#    <View>
#      <Image name="image" value="$image"/>
#      <Choices name="cluster" toName="image"> <Choice value="cluster 0"/> ... </Choices>
#    </View>


def choice(name):
    """Return the result of one decision, as Label Studio writes it."""
    return {"from_name": "cluster", "to_name": "image", "type": "choices", "value": {"choices": [name]}}


tasks = [
    {
        "data": {"image": f"/data/local-files/?d=handed-over/data/{i:04d}.png"},
        "predictions": [{"score": float(clusterer.confidence_[i]), "result": [choice(classes[clusterer.labels_[i]])]}],
    }
    for i in np.argsort(clusterer.confidence_, kind="stable")
]
(folder / "tasks.json").write_text(json.dumps(tasks))
print(json.dumps(tasks[0]["predictions"][0], indent=2))

# %%
# The export of Label Studio has the decisions of people as ``annotations``. Here two of them are made up.
exported = [dict(task, annotations=[{"result": [choice("cluster 1")]}]) for task in tasks[:2]]
decided = {
    int(Path(task["data"]["image"]).stem): task["annotations"][0]["result"][0]["value"]["choices"][0]
    for task in exported
}
print("decided by people:", decided)

# %%
# FiftyOne exports the same form that it imports, with the classes that people gave. A picture whose class differs from
# its cluster was decided by a person.
corrected = json.loads((folder / "labels.json").read_text())
corrected["labels"]["0007"]["label"] = 3  # as if a person had changed it
decided |= {
    int(name): corrected["classes"][found["label"]]
    for name, found in corrected["labels"].items()
    if found["label"] != clusterer.labels_[int(name)]
}

# %%
# Decisions are answers: the clusterer takes them, and similar pictures follow.
clusterer.refine(decided)
print("named clusters:", [name for name in clusterer.names_ if name])
print("about", clusterer.n_doubtful_, "pictures may still have a wrong name")
