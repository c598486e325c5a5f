"""
Features as pandas and Polars tables
====================================

``set_output`` makes every coder return its features as a data frame with named columns, ready to be joined with what
else is known about the images.
"""

import pandas as pd
import polars as pl
from sklearn.datasets import load_digits

from tubal import TubSC

digits = load_digits()
images = digits.images[:300] / 16.0

coder = TubSC(n_atoms=6, max_iter=4, random_state=0).set_output(transform="pandas")
features = coder.fit_transform(images)
features.round(3).head()

# %%
# Mean features of each digit, from a join with a second table.
table = features.join(pd.Series(digits.target[:300], name="digit"))
table.groupby("digit").mean().round(3)

# %%
# The same with Polars.
frame = coder.set_output(transform="polars").transform(images)
print(frame.with_columns(pl.Series("digit", digits.target[:300])).filter(pl.col("digit") == 3).head(3))
