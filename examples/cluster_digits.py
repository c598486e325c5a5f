"""Cluster handwritten digits without labels, then print what the clusterer found about single images.

    python examples/cluster_digits.py

The labels of the digits are used only to score the result.
"""

from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from tubal import ImageClusterer
from tubal.metrics import clustering_accuracy, clustering_nmi

digits = load_digits()
images = digits.images / 16.0  # (1797, 8, 8), pixels in [0, 1]

clusterer = ImageClusterer(n_clusters=10, random_state=0).fit(images)
baseline = KMeans(10, n_init=10, random_state=0).fit_predict(images.reshape(len(images), -1))

print("                accuracy    NMI")
for name, labels in (("K-means", baseline), ("tubal", clusterer.labels_)):
    accuracy = 100 * clustering_accuracy(digits.target, labels)
    nmi = 100 * clustering_nmi(digits.target, labels)
    print(f"{name:14}  {accuracy:6.1f} %  {nmi:6.1f} %")

print("\nDigits on the most typical image of each cluster:", digits.target[clusterer.medoids_])
doubtful = clusterer.confidence_.argsort()[:5]
print("Least certain images:", doubtful, "with confidence", clusterer.confidence_[doubtful].round(2))
print("Outliers:", clusterer.outliers_.sum(), "   groups of near-duplicates:", len(clusterer.duplicates_))

# Another number of clusters needs no new fit: the graph and the codes stay the same.
print("Cluster sizes with five clusters:", [int((clusterer.labels_for(5) == k).sum()) for k in range(5)])
